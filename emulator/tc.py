"""The one place that runs ``tc -batch``; needs nothing but the standard library, for stock Mininet's interpreter."""

from __future__ import annotations

import subprocess


def run_batch(lines: str) -> str:
    """Have tc carry out ``lines``; its first complaint if it failed, else an empty text."""
    done = subprocess.run(["tc", "-batch", "-"], input=lines, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
