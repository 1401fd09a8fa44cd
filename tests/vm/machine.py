"""A virtual machine from an image, started by QEMU and used through ssh; gone, with its disk, at the end.

Where there is no hardware support, time in the machine is the host's, so it seems slow, and slower on a busy host. What
is to be *measured* is therefore run in a second start, without services or network, whose clock counts instructions
(:func:`measure`): a machine of one instruction a nanosecond, however long the host takes.
"""

from __future__ import annotations

import re
import selectors
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.vm.image import USER, Image

CORES = 2
MEMORY_MB = 4096
PROBE_S = 20.0
"""Where /dev/kvm is there but does not work, a kernel may never say its first words."""

BOOT_S = 900.0
"""Software emulation took 42 s on two cores that were not idle, and far longer on busy ones."""

MEASURE_S = 3600.0
INIT = "/railbed/tests/vm/measure-init"

COMMAND_LINE = (
    "root=/dev/vda rw console=ttyS0 net.ifnames=0 quiet no_timer_check "
    "systemd.default_timeout_start_sec=900s systemd.default_device_timeout_sec=900s"
)
"""On a busy machine without hardware support services start slowly; systemd must not give them up."""


def accelerator(image: Image) -> str:
    """``kvm`` if a kernel starts on it here, else ``tcg``, software emulation."""
    if not Path("/dev/kvm").exists():
        return "tcg"
    command = _qemu("kvm", 1, 512, image, "console=ttyS0 earlyprintk=serial panic=-1")
    with subprocess.Popen(
        [*command, "-serial", "stdio"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        said = _says_something(process.stdout, PROBE_S)
        process.kill()
    return "kvm" if said else "tcg"


def _says_something(stream: IO[bytes], timeout_s: float) -> bool:
    """Whether a kernel's first line arrives on ``stream`` in time."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        deadline_s = time.monotonic() + timeout_s
        text = b""
        while (left_s := deadline_s - time.monotonic()) > 0 and selector.select(left_s):
            part = stream.read1(4096)  # type: ignore[attr-defined]
            text += part
            if b"Linux version" in text:
                return True
            if not part:
                return False
    return False


def _qemu(accelerator: str, cores: int, memory_mb: int, image: Image, command_line: str) -> list[str]:
    machine = "q35,accel=kvm" if accelerator == "kvm" else "q35,accel=tcg"
    return [
        "qemu-system-x86_64", "-machine", machine, "-cpu", "host" if accelerator == "kvm" else "max,la57=off",
        "-smp", str(cores), "-m", str(memory_mb), "-display", "none", "-monitor", "none", "-no-reboot",
        "-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", command_line,
    ]  # fmt: skip


class Machine:
    """A running virtual machine; commands are run as its user."""

    def __init__(self, key: Path, port: int, console: Path, process: subprocess.Popen[bytes]) -> None:
        self._console = console
        self._process = process
        options = {
            "StrictHostKeyChecking": "no", "UserKnownHostsFile": "/dev/null", "LogLevel": "ERROR", "BatchMode": "yes",
            "ConnectTimeout": "30", "ServerAliveInterval": "30",
        }  # fmt: skip
        words = [f"-o{name}={value}" for name, value in options.items()]
        self._ssh = ["ssh", "-i", str(key), "-p", str(port), *words, f"{USER}@127.0.0.1"]

    def run(
        self, command: str, timeout_s: float = 300.0, stdin: IO[bytes] | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command and wait for it; with ``check`` an exit code other than 0 raises RuntimeError."""
        done = subprocess.run(
            [*self._ssh, command],
            stdin=stdin or subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        text = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        if check and done.returncode != 0:
            raise RuntimeError(f"'{command}' ended with {done.returncode}:\n{text[0][-4000:]}\n{text[1][-4000:]}")
        return subprocess.CompletedProcess(command, done.returncode, *text)

    def script(self, text: str, timeout_s: float = 300.0) -> str:
        """Output of a shell script, standard error included; raises RuntimeError if it fails."""
        with tempfile.TemporaryFile() as stream:
            stream.write(text.encode())
            stream.seek(0)
            # Read whole before it runs, so that no command in it takes the rest for its own input.
            return self.run('exec bash -c "$(cat)" 2>&1 </dev/null', timeout_s, stream).stdout

    def copy_in(self, source: Path, target: str, leave_out: Sequence[str]) -> None:
        """Copy a folder's files to ``target``, which then belongs to the user, without what ``leave_out`` names."""
        exclude = [f"--exclude=./{name.rstrip('/')}" for name in leave_out]
        with subprocess.Popen(
            ["tar", *exclude, "--exclude=__pycache__", "-C", str(source), "-cf", "-", "."], stdout=subprocess.PIPE
        ) as tar:
            place = shlex.quote(target)
            self.run(
                f"sudo mkdir -p {place} && sudo chown {USER} {place} && tar --no-same-owner -C {place} -xf -",
                600,
                tar.stdout,
            )
        if tar.returncode != 0:
            raise RuntimeError(f"tar could not read {source}")

    def await_ssh(self, timeout_s: float) -> None:
        """Wait until commands can be run; raises RuntimeError with the console's last lines."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s and self._process.poll() is None:
            try:
                if self.run("true", 60, check=False).returncode == 0:
                    return
            except subprocess.TimeoutExpired:
                continue
            with_deadline = deadline_s - time.monotonic()
            try:
                self._process.wait(min(2.0, max(0.0, with_deadline)))
            except subprocess.TimeoutExpired:
                continue
        raise RuntimeError(
            f"the virtual machine did not answer within {timeout_s:g} s; its console says:\n{self._last()}"
        )

    def shut_down(self) -> None:
        """Have it switch itself off, so that its disk is whole."""
        self.run("sudo systemctl poweroff", check=False)
        self._process.wait(BOOT_S)

    def _last(self) -> str:
        return "\n".join(self._console.read_text(errors="replace").splitlines()[-20:])


@contextmanager
def booted(image: Image, folder: Path, accelerator: str) -> Iterator[Machine]:
    """A machine with a disk of its own, an overlay over the image's in ``folder``, until the end."""
    overlay = _overlay(folder)
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(image.disk.resolve()), "-F", "raw", str(overlay)],
        check=True,
    )
    port = free_port()
    console = folder / "console.log"
    command = [
        *_qemu(accelerator, CORES, MEMORY_MB, image, COMMAND_LINE), *_devices(overlay, console),
        "-nic", f"user,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:{port}-:22",
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            machine = Machine(image.key, port, console, process)
            machine.await_ssh(BOOT_S)
            yield machine
        finally:
            process.kill()


def measure(image: Image, folder: Path, accelerator: str, job: str) -> str:
    """What ``job`` of ``measure-init`` prints, on the disk that :func:`booted` has left in ``folder``.

    Raises RuntimeError with the console's last lines if it fails.
    """
    console = folder / f"{job}.log"
    words = COMMAND_LINE.replace(" quiet", "") + f" init={INIT} railbed.job={job}"
    # A kernel does not get past starting its second core when the clock counts instructions.
    cores = CORES if accelerator == "kvm" else 1
    command = [
        *_qemu(accelerator, cores, MEMORY_MB, image, words),
        *_devices(_overlay(folder), console),
        "-nic",
        "none",
    ]
    if accelerator != "kvm":
        command += ["-icount", "shift=0,sleep=off"]
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=MEASURE_S)
    text = console.read_text(errors="replace").replace("\r", "")
    found = re.search(rf"^=== {job}\n(.*?)^=== end of {job}: (\d+)$", text, re.MULTILINE | re.DOTALL)
    if found is None or found[2] != "0":
        raise RuntimeError(f"'{job}' failed in the virtual machine; its console says:\n{text[-4000:]}")
    return found[1]


def _overlay(folder: Path) -> Path:
    return folder / "overlay.qcow2"


def _devices(overlay: Path, console: Path) -> list[str]:
    return [
        "-serial", f"file:{console}", "-device", "virtio-rng-pci",
        "-drive", f"file={overlay},if=virtio,format=qcow2,cache=unsafe,discard=unmap",
    ]  # fmt: skip


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
