"""A disk image of Debian 12, made from Debian's packages: debootstrap, a distribution kernel, one ext4 file system.

It has what a Vagrant box has (a user ``vagrant`` who may use sudo, ssh, rsync, DHCP on eth0) and is started with its
kernel given directly, so that it needs no boot loader. Needs root and the programs of :data:`PROGRAMS`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.handover import Handover, handover

SUITE = "bookworm"
KERNEL = "linux-image-cloud-amd64"
PACKAGES = (
    KERNEL, "initramfs-tools", "systemd-sysv", "udev", "dbus", "openssh-server", "sudo", "ca-certificates", "kmod",
    "ifupdown", "isc-dhcp-client", "iproute2", "netbase", "rsync", "python3", "procps",
)  # fmt: skip
PROGRAMS = {
    "debootstrap": "debootstrap",
    "mke2fs": "e2fsprogs",
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
"""What building and starting needs, with the Debian package of each."""

DISK_GB = 16
USER = "vagrant"

_FILES = {
    "/etc/hostname": "railbed\n",
    "/etc/hosts": "127.0.0.1 localhost\n127.0.1.1 railbed\n",
    "/etc/fstab": "/dev/vda / ext4 noatime 0 1\n",
    "/etc/network/interfaces": "auto lo eth0\niface lo inet loopback\niface eth0 inet dhcp\n",
    f"/etc/sudoers.d/{USER}": f"{USER} ALL=(ALL) NOPASSWD: ALL\n",
    "/etc/ssh/sshd_config.d/quick.conf": "UseDNS no\nPrintMotd no\n",
}


@dataclass(frozen=True)
class Image:
    """A folder with the ``disk`` (raw), the ``kernel`` and ``initrd`` to start it with, and the user's ssh ``key``."""

    folder: Path

    @property
    def disk(self) -> Path:
        """The disk; never started from directly, only through an overlay."""
        return self.folder / "disk.raw"

    @property
    def kernel(self) -> Path:
        """The kernel of :data:`KERNEL`."""
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """Its initial file system."""
        return self.folder / "initrd"

    @property
    def key(self) -> Path:
        """The private key that the user's account accepts."""
        return self.folder / "key"


def missing_programs() -> list[str]:
    """Debian packages that this machine lacks."""
    return sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})


def image(cache: Path) -> Image:
    """The image from ``cache``, made first (12 minutes on two busy cores) if it is missing or of other parts."""
    taken_over = handover(SUITE)
    folder = cache / f"{SUITE}-{_recipe(taken_over)}"
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        _build(unfinished, taken_over)
        unfinished.rename(folder)
    return Image(folder)


def _recipe(taken_over: Handover) -> str:
    """A short text that is another one whenever the image would be."""
    authorities = [path.read_text() for path in taken_over.authorities]
    parts = (PACKAGES, sorted(_FILES.items()), DISK_GB, sorted(taken_over.files.items()), authorities)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def _build(folder: Path, taken_over: Handover) -> None:
    root, made = folder / "root", Image(folder)
    _run(
        ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root), taken_over.mirror],
        folder / "debootstrap.log",
    )
    taken_over.write(root)
    with (root / "etc/pip.conf").open("a") as pip:
        # In software emulation compiling modules that nobody will import takes long.
        pip.write("no-compile = no\n")  # pip's way to say yes
    for name, text in _FILES.items():
        (root / name.lstrip("/")).write_text(text)
    log = folder / "configure.log"
    _run(["chroot", str(root), "update-ca-certificates"], log)
    _run(["chroot", str(root), "useradd", "--create-home", "--shell", "/bin/bash", USER], log)
    _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "railbed-vm", "-f", str(made.key)], log)
    ssh = root / "home" / USER / ".ssh"
    ssh.mkdir(mode=0o700)
    shutil.copyfile(made.key.with_suffix(".pub"), ssh / "authorized_keys")
    _run(["chroot", str(root), "chown", "-R", f"{USER}:{USER}", f"/home/{USER}/.ssh"], log)
    (root / "etc/resolv.conf").unlink(missing_ok=True)  # this machine's; DHCP writes the guest's
    for path in (root / "var/cache/apt/archives").glob("*.deb"):
        path.unlink()
    shutil.copyfile(next((root / "boot").glob("vmlinuz-*")), made.kernel)
    shutil.copyfile(next((root / "boot").glob("initrd.img-*")), made.initrd)
    _run(["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(made.disk), f"{DISK_GB}G"], log)
    shutil.rmtree(root)


def _run(command: Sequence[str], log: Path) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    with log.open("ab") as stream:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, check=False, env=environment
        )
    if done.returncode != 0:
        last = (log.read_text(errors="replace").splitlines() or ["it said nothing"])[-1]
        raise RuntimeError(f"{command[0]} failed with exit code {done.returncode}: {last} (log: {log})")
