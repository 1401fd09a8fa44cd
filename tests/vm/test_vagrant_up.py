"""``vagrant up`` itself, where Vagrant, its provider libvirt and a libvirt daemon are there; its box is our image."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vm import box
from tests.vm.image import image
from tests.vm.machine import accelerator
from tests.vm.test_vm import CACHE, ROOT
from tests.vm.test_vm import pytestmark as needs

UP_S = 5400
"""Provisioning in software emulation takes long."""


def why_not() -> str:
    """Why Vagrant cannot start a machine here; empty if it may."""
    for program in ("vagrant", "virsh", "rsync"):
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: vagrant, vagrant-libvirt, libvirt-daemon-system, rsync)"
    done = subprocess.run(["virsh", "-c", "qemu:///system", "version"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"no libvirt daemon answers: {done.stderr.strip().splitlines()[-1]}"


pytestmark = [*needs, pytest.mark.skipif(bool(why_not()), reason=why_not())]


class Vagrant:
    """Vagrant with a home, a state folder and a box of its own; the checkout stays as it is."""

    def __init__(self, folder: Path) -> None:
        self._environment = {
            **os.environ,
            "VAGRANT_HOME": str(folder / "home"),
            "VAGRANT_DOTFILE_PATH": str(folder / "state"),
            "VAGRANT_CHECKPOINT_DISABLE": "1",
            "RAILBED_VM_BOX": box.NAME,
            "RAILBED_VM_PORT": "18400",
        }

    def __call__(self, *words: str, timeout_s: float = 600) -> str:
        """What it prints; raises AssertionError with the last of it if it fails."""
        done = subprocess.run(
            ["vagrant", *words], cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout


@pytest.fixture(scope="module")
def vagrant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vagrant]:
    folder = tmp_path_factory.mktemp("vagrant")
    made = image(CACHE)
    one = Vagrant(folder)
    packed = box.pack(made, folder, accelerator(made))
    one("box", "add", "--name", box.NAME, str(packed))
    packed.unlink()
    try:
        yield one
    finally:
        one("destroy", "--force")
        remove_volumes()


def remove_volumes() -> None:
    """Take our box's disk out of libvirt's pool, where the provider leaves it."""
    virsh = ["virsh", "-c", "qemu:///system"]
    listed = subprocess.run([*virsh, "vol-list", "default"], capture_output=True, text=True, check=True).stdout
    for name in (line.split()[0] for line in listed.splitlines() if line.strip().startswith(f"{box.NAME}_vagrant_box")):
        subprocess.run([*virsh, "vol-delete", name, "default"], capture_output=True, check=True)


def test_vagrant_up_is_the_whole_story(vagrant: Vagrant) -> None:
    said = vagrant("up", "--provider=libvirt", timeout_s=UP_S)
    assert "==> ready" in said
    assert re.search(r"http://127\.0\.0\.1:18400/\?token=[0-9a-f]{32}", said)
    assert "kernel" in vagrant("ssh", "-c", "railbed up --domains 2 --rails 2 && railbed status && railbed down")
