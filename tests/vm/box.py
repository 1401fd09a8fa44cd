"""A Vagrant box for the provider libvirt, packed from an image: its disk, and the kernel to start it with."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.vm.image import DISK_GB, Image
from tests.vm.machine import COMMAND_LINE

NAME = "railbed-debian-12"

_VAGRANTFILE = f"""Vagrant.configure("2") do |config|
  config.ssh.private_key_path = File.expand_path("key", __dir__)
  config.ssh.insert_key = false
  config.vm.boot_timeout = 1800
  config.vm.provider "libvirt" do |libvirt|
    libvirt.driver = "%s"
    libvirt.kernel = File.expand_path("vmlinuz", __dir__)
    libvirt.initrd = File.expand_path("initrd", __dir__)
    libvirt.cmd_line = "{COMMAND_LINE}"
  end
end
"""


def pack(image: Image, folder: Path, accelerator: str) -> Path:
    """The box's file, made in ``folder``; ``accelerator`` is ``kvm``, or ``tcg`` for software emulation."""
    parts = folder / "parts"
    parts.mkdir()
    disk = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(image.disk), str(parts / "box.img")]
    subprocess.run(disk, check=True)
    for path in (image.kernel, image.initrd, image.key):
        shutil.copy2(path, parts / path.name)
    metadata = {"provider": "libvirt", "format": "qcow2", "virtual_size": DISK_GB}
    (parts / "metadata.json").write_text(json.dumps(metadata))
    (parts / "Vagrantfile").write_text(_VAGRANTFILE % ("kvm" if accelerator == "kvm" else "qemu"))
    box = folder / f"{NAME}.box"
    subprocess.run(["tar", "-C", str(parts), "-cf", str(box), *sorted(p.name for p in parts.iterdir())], check=True)
    shutil.rmtree(parts)
    return box
