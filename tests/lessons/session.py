"""Runs the commands of a page as its reader would: typed into a shell, one after the other, in a fresh folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.lessons.matching import why_different
from tests.lessons.pages import ROOT, Block, Command, NotRun

PARTS = ("railbed", "docs", "benchmarks", "experiments", "topologies", "tests")
"""What a reader in a checkout finds beside the launcher; what commands write lies in the session's own folder."""
FABRIC = "default"
"""What the fabric of a page is called, so that others may be up meanwhile."""
WATCHDOG_S = 300.0


def prepare(folder: Path) -> None:
    """Make ``folder`` look like a checkout without results, whose first call has installed what is missing."""
    for name in PARTS:
        (folder / name).symlink_to(ROOT / name)
    text, code = type_command(Command("./railbed --version", 0), folder)
    assert code == 0, text


def type_command(command: Command, folder: Path) -> tuple[str, int]:
    """What the command printed on both streams, and its exit code; ``sudo`` is left out, as the caller is root."""
    done = subprocess.run(
        ["bash", "-c", command.text.removeprefix("sudo ")],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=WATCHDOG_S,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"RAILBED_FABRIC": FABRIC},
    )
    return done.stdout, done.returncode


def wrong(page: Path, blocks: Iterable[Block], skipped: Iterable[NotRun], folder: Path) -> list[str]:
    """Run a page's commands; one line for each that ended otherwise or printed something else than the page shows."""
    left_out = {one.command for one in skipped if one.page == page}
    found = []
    for block in blocks:
        printed = ""
        run = [command for command in block.commands if command.text not in left_out]
        for command in run:
            text, code = type_command(command, folder)
            printed += text
            if code != command.exit_code:
                found.append(
                    f"{page.name}:{command.line}: {command.text}: exit code {code}, shown {command.exit_code}: {text}"
                )
        if block.output is None or not run:
            continue
        if len(run) < len(block.commands):
            found.append(f"{page.name}:{block.output.line}: the output of commands of which some are not run")
        else:
            difference = why_different(block.output, printed)
            if difference:
                found.append(f"{page.name}:{block.output.line}: {difference}\nall that was printed:\n{printed}")
    return found
