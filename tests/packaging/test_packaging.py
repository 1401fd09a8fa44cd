"""The distributions are complete; a plain installation runs all that needs no root, and says what the rest needs."""

from __future__ import annotations

import json
import os
import re
import urllib.request
import zipfile
from pathlib import Path

import pytest

from cli.main import COMMANDS
from dashboard.recording import Recorder
from tests.checkout import ROOT, clean_copy, tracked_files
from tests.dashboard.browser import served
from tests.packaging.environments import (
    Distributions,
    build,
    installed_environment,
    interpreter,
    linked_environment,
    run,
)

PACKAGES = ("topologies", "workloads", "controller", "emulator", "simulator", "experiments", "dashboard", "cli")
SCENARIO = """\
name: tiny
fabrics:
  - {kind: rail-only, preset: dgx-h100, domains: 2, rails: 2}
  - {kind: rail-optimized, preset: dgx-h100, domains: 2, rails: 2}
workload:
  - {collective: all-reduce, size: 64MiB}
failures:
  - {link: auto, at: 50%}
"""
WITHOUT_EXTRA = {
    "validate": ["tiny.yaml"],
    "plan": ["tiny.yaml"],
    "run": ["tiny.yaml", "--backend", "simulator"],
    "results": [],
    "compare": ["latest:rail-only", "latest:rail-optimized"],
    "report": ["latest"],
    "experiments": [],
    "cost": ["rail-only", "--gpus", "1024"],
    "downtime": [],
    "iteration": ["gpt3-175b", "--tp", "2", "--dp", "2"],
}
"""Commands with words that a plain installation can carry out, in an order in which they can."""

WITH_EXTRA = {
    "dashboard": ("dashboard", ["--replay", "recording.jsonl"]),
    "exec": ("emulator", ["--", "true"]),
    **dict.fromkeys(("demo", "up", "down", "status", "rules", "failures", "calibrate", "mystery"), ("emulator", [])),
    **dict.fromkeys(("path", "why"), ("emulator", ["d0r0", "d1r1"])),
    **dict.fromkeys(("fail", "restore", "blackhole", "flap", "solve"), ("emulator", ["d0r0-rail0"])),
    "degrade": ("emulator", ["d0r0-rail0", "5"]),
    "delay": ("emulator", ["d0r0-rail0", "1"]),
    "loss": ("emulator", ["d0r0-rail0", "1"]),
}
"""Commands that need an extra: which, and words that they accept."""

ONLY_IN_A_CHECKOUT = {"setup": [], "uninstall": [], "test": [], "bench": ["routes"]}
ANYWHERE = {"doctor"}
OTHERS = sorted(set(COMMANDS) - {*WITHOUT_EXTRA, *WITH_EXTRA, *ONLY_IN_A_CHECKOUT, *ANYWHERE})
"""Commands of which only the help is tried here: at least their modules must load without extras."""

SCRIPT = """\
import contextlib, io, json, sys
from cli.main import main
answers = {}
for name, words in json.loads(sys.argv[1]).items():
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([name, *words])
        except SystemExit as end:
            answers[name] = [end.code, out.getvalue(), err.getvalue()]
print(json.dumps(answers))
"""
"""Runs commands one after the other in one process, which saves most of their time."""


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return build(tmp_path_factory.mktemp("distributions"))


@pytest.fixture(scope="module")
def installed(distributions: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `railbed` of a plain installation."""
    return linked_environment(tmp_path_factory.mktemp("plain") / "environment", distributions.wheel)


def supported_versions() -> list[str]:
    """The Python versions that setup.py names."""
    text = (ROOT / "setup.py").read_text()
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)


def answers(railbed: Path, commands: dict[str, list[str]], folder: Path, interpreted: bool = False) -> dict[str, list]:
    """Exit code, output and error text of each command.

    ``interpreted``: the simulator's loops aren't compiled, which takes longer than a small run does. They count with
    integers that overflow on purpose, and NumPy warns of that where compiled code does not.
    """
    command = [railbed.with_name("python"), "-I", "-W", "ignore:overflow encountered", "-c", SCRIPT]
    variables = {"NUMBA_DISABLE_JIT": "1"} if interpreted else {}
    return json.loads(run(*command, json.dumps(commands), cwd=folder, timeout_s=600, **variables))


def test_the_source_distribution_is_the_whole_checkout(distributions: Distributions) -> None:
    made = {"PKG-INFO", "setup.cfg"}
    assert {file for file in distributions.files if "egg-info/" not in file} - made == set(tracked_files())
    assert os.access(distributions.launcher, os.X_OK)


def test_the_wheel_has_every_file_of_the_packages_and_no_other(distributions: Distributions) -> None:
    with zipfile.ZipFile(distributions.wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == {file for file in tracked_files() if file.split("/")[0] in PACKAGES}


def test_a_plain_installation_runs_what_needs_no_root(installed: Path, tmp_path: Path) -> None:
    check_root_free(installed, tmp_path, interpreted=True)


def test_a_command_that_needs_an_extra_says_which_in_one_sentence(installed: Path, tmp_path: Path) -> None:
    said = answers(installed, {name: words for name, (_, words) in WITH_EXTRA.items()}, tmp_path)
    for name, (extra, _) in WITH_EXTRA.items():
        code, output, error = said[name]
        assert (code, output, error.count("\n")) == (2, "", 1), (name, error)
        if os.geteuid() == 0:
            assert f"install the extra '{extra}'" in error, name
        else:
            assert f"install the extra '{extra}'" in error or "needs root" in error, name


def test_a_run_that_needs_an_extra_says_which_in_one_sentence(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(SCENARIO)
    sweep = [
        "tiny.yaml",
        "--backend",
        "simulator",
        "--sweep",
        "fabrics.domains=2,4",
        "--scheduler",
        "tcp://127.0.0.1:1",
    ]
    (code, output, error) = answers(installed, {"run": sweep}, tmp_path)["run"]
    assert (code, output, error.count("\n")) == (2, "", 1)
    assert "install the extra 'dask'" in error
    if os.geteuid() == 0:
        (code, output, error) = answers(installed, {"run": ["tiny.yaml", "--backend", "emulator"]}, tmp_path)["run"]
        assert (code, output, error.count("\n")) == (2, "", 1)
        assert "install the extra 'emulator'" in error


def test_commands_of_the_checkout_say_so_and_the_doctor_answers(installed: Path, tmp_path: Path) -> None:
    said = answers(installed, {**ONLY_IN_A_CHECKOUT, "doctor": [], **{name: ["--help"] for name in OTHERS}}, tmp_path)
    for name in ONLY_IN_A_CHECKOUT:
        code, output, error = said[name]
        assert (code, output, error.count("\n")) == (2, "", 1), (name, error)
        assert "checkout" in error
    assert [name for name in OTHERS if said[name][0] != 0] == []
    code, output, error = said["doctor"]
    assert (code, error) == (1, "")
    assert "No fabric can be emulated here yet." in output


def test_setup_and_readme_name_the_same_versions() -> None:
    text = (ROOT / "setup.py").read_text()
    versions = supported_versions()
    table = re.findall(r"^\| Python (3\.\d+) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert versions == table
    assert f'python_requires=">={versions[0]}"' in text
    assert [int(version.split(".")[1]) for version in versions] == list(range(10, 10 + len(versions)))


@pytest.mark.soak
@pytest.mark.parametrize("version", supported_versions())
def test_every_supported_version_installs_from_the_registry_and_runs(
    distributions: Distributions, version: str, tmp_path: Path
) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} with venv on PATH or in ~/.pyenv/versions")
    railbed = installed_environment(tmp_path / "environment", python, f"{distributions.wheel}")
    work = tmp_path / "work"
    work.mkdir()
    check_root_free(railbed, work)
    run(railbed.with_name("python"), "-m", "pip", "install", f"{distributions.wheel}[dashboard]", timeout_s=900)
    check_replay(railbed, work)


@pytest.mark.soak
@pytest.mark.parametrize("version", supported_versions())
def test_the_exact_versions_can_be_had_for_every_supported_version(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} with venv on PATH or in ~/.pyenv/versions")
    run(python, "-m", "venv", tmp_path / "environment")
    wanted = f"{clean_copy(tmp_path / 'checkout')}[emulator,dashboard,dask,test]"
    pip = [tmp_path / "environment" / "bin" / "python", "-m", "pip", "install", "--dry-run", "--only-binary=:all:"]
    run(*pip, "-c", ROOT / "requirements" / "constraints.txt", wanted, timeout_s=900)


def check_root_free(railbed: Path, folder: Path, interpreted: bool = False) -> None:
    """Carry out all that a plain installation can."""
    (folder / "tiny.yaml").write_text(SCENARIO)
    for name, (code, output, error) in answers(railbed, WITHOUT_EXTRA, folder, interpreted).items():
        assert (code, error) == (0, ""), (name, error)
        assert output, name
    (result,) = (folder / "results").iterdir()
    assert (result / "report.html").stat().st_size > 10_000


def check_replay(railbed: Path, folder: Path) -> None:
    """Serve the page of a recording and fetch it."""
    with (folder / "recording.jsonl").open("w") as stream:
        Recorder(stream, 0.0).write(0.0, {"event": "gone"})
    with (
        served("--replay", "recording.jsonl", railbed=[str(railbed)], folder=folder) as address,
        urllib.request.urlopen(address, timeout=60) as page,
    ):
        assert b"<html" in page.read()
