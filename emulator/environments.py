"""Where the launcher keeps Railbed's Python environments; standard library only, for stock Mininet's interpreter."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parent.parent
MACHINE_SETTINGS = Path("/etc/default/railbed")
"""Shell assignments that the launcher reads first, if the file is there."""

VARIABLE = "RAILBED_ENVIRONMENTS"


def interpreter(environment: str, settings: Path = MACHINE_SETTINGS) -> Path:
    """The interpreter of ``.venv`` or ``.venv-ryu``; it need not be there.

    They are in the checkout, or in a folder per platform and architecture of the one that RAILBED_ENVIRONMENTS names:
    in the process's environment, or in the machine's settings where the launcher was not what started this process.
    """
    outside = os.environ.get(VARIABLE) or _setting(settings)
    platform = os.uname()
    folder = Path(outside) / f"{platform.sysname}-{platform.machine}" if outside else PROJECT_ROOT
    return folder / environment / "bin" / "python"


def _setting(settings: Path) -> str:
    if not os.access(settings, os.R_OK):
        return ""
    script = f'. "$1" && printf %s "${{{VARIABLE}:-}}"'
    done = subprocess.run(["sh", "-c", script, "sh", str(settings)], capture_output=True, text=True, check=False)
    return done.stdout
