"""What the packaging tests share: the distributions, interpreters, and environments to install them into."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.checkout import clean_copy

BUILD = "import setuptools.build_meta as hooks, sys; hooks.build_{kind}(sys.argv[1])"


@dataclass(frozen=True)
class Distributions:
    """The files of the source distribution, its launcher, and the wheel that was built from it."""

    files: frozenset[str]
    launcher: Path
    wheel: Path


def build(folder: Path) -> Distributions:
    """Build the source distribution of a clean checkout, and from it the wheel."""
    checkout, products = clean_copy(folder / "checkout"), folder / "dist"
    products.mkdir()
    run(sys.executable, "-c", BUILD.format(kind="sdist"), products, cwd=checkout)
    (sdist,) = products.glob("*.tar.gz")
    shutil.unpack_archive(sdist, folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    files = frozenset(str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file())
    run(sys.executable, "-c", BUILD.format(kind="wheel"), products, cwd=unpacked)
    (wheel,) = products.glob("*.whl")
    return Distributions(files, unpacked / "railbed", wheel)


def interpreter(version: str) -> Path | None:
    """An interpreter of this version, from PATH or from pyenv; None where there is none."""
    places = [shutil.which(f"python{version}"), *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
    for place in filter(None, places):
        asked = [str(place), "-c", "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
        if done.stdout.strip() == version:
            return Path(place)
    return None


def plain_requirements() -> set[str]:
    """The distributions of this environment that a plain `pip install` of Railbed would bring."""
    pending, found = [_wanted("railbed")], set()
    while pending:
        for name in pending.pop() - found:
            found.add(name)
            pending.append(_wanted(name))
    return found


def _wanted(name: str) -> set[str]:
    """What a distribution requires without extras, of what is installed: the rest is for other versions or systems."""
    names = set()
    for line in importlib.metadata.requires(name) or []:
        if "extra ==" not in line and (match := re.match(r"[A-Za-z0-9._-]+", line)):
            try:
                names.add(importlib.metadata.distribution(match.group()).name.lower())
            except importlib.metadata.PackageNotFoundError:
                continue
    return names


def linked_environment(folder: Path, wheel: Path) -> Path:
    """A new environment with the wheel and links to :func:`plain_requirements`; gives its `railbed`."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    place = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    for name in plain_requirements():
        distribution = importlib.metadata.distribution(name)
        for top in {Path(file).parts[0] for file in distribution.files or [] if not str(file).startswith("..")}:
            source = Path(str(distribution.locate_file(top)))
            if top != "__pycache__" and source.exists():
                (place / top).symlink_to(source)
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--no-compile", wheel)
    return folder / "bin" / "railbed"


def installed_environment(folder: Path, python: Path, requirement: str) -> Path:
    """A new environment into which ``requirement`` was installed from the registry; gives its `railbed`."""
    run(python, "-m", "venv", folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "--only-binary=:all:", requirement, timeout_s=900)
    return folder / "bin" / "railbed"


def run(*words: str | Path, cwd: Path | None = None, timeout_s: float = 900, **variables: str) -> str:
    """The output of a command that must succeed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env={**environment, **variables}, timeout=timeout_s,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.stdout}"
    return done.stdout
