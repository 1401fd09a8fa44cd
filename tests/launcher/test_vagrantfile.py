"""The classroom VM's Vagrantfile and the scripts that provision it, as far as they can be tried without a VM."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VAGRANTFILE = (ROOT / "Vagrantfile").read_text()

needs_vagrant = pytest.mark.skipif(shutil.which("vagrant") is None, reason="vagrant is not installed")


def vagrant(tmp_path: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "VAGRANT_HOME": str(tmp_path), "VAGRANT_CHECKPOINT_DISABLE": "1", **settings}
    return subprocess.run(
        ["vagrant", *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@needs_vagrant
def test_vagrant_finds_it_right(tmp_path: Path) -> None:
    done = vagrant(tmp_path, "validate", "--ignore-provider")
    assert done.returncode == 0, done.stdout + done.stderr
    if "vagrant-libvirt" in vagrant(tmp_path, "plugin", "list", "--local").stdout + installed_gems():
        done = vagrant(tmp_path, "validate", VAGRANT_DEFAULT_PROVIDER="libvirt", RAILBED_VM_CORES="4")
        assert done.returncode == 0, done.stdout + done.stderr


def installed_gems() -> str:
    folder = Path("/usr/share/rubygems-integration/all/gems")
    return " ".join(path.name for path in folder.iterdir()) if folder.is_dir() else ""


@needs_vagrant
@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("RAILBED_VM_CORES", "two", "must be a whole number from 1 to 64, not 'two'"),
        ("RAILBED_VM_MEMORY_MB", "512", "must be a whole number from 2048 to 262144, not '512'"),
        ("RAILBED_VM_PORT", "80", "must be a whole number from 1024 to 65535, not '80'"),
    ],
)
def test_nonsense_in_the_environment_is_one_sentence(tmp_path: Path, name: str, value: str, sentence: str) -> None:
    done = vagrant(tmp_path, "validate", "--ignore-provider", **{name: value})
    assert done.returncode != 0
    assert f"{name} {sentence}" in done.stderr.splitlines()


def test_the_page_is_forwarded_to_the_hosts_loopback_only() -> None:
    (line,) = re.findall(r'.*"forwarded_port".*', VAGRANTFILE)
    assert 'host_ip: "127.0.0.1"' in line
    from cli.dashboard import DEFAULT_PORT

    assert f"PAGE_PORT = {DEFAULT_PORT}" in VAGRANTFILE


def test_every_file_that_it_names_is_there() -> None:
    for path in re.findall(r'path: "([^"]+)"', VAGRANTFILE):
        assert os.access(ROOT / path, os.X_OK), path
