"""Fresh machines to try the launcher on: a distribution's minimal system in a folder, entered in namespaces of its own.

Nothing of a machine outlives the call that enters it but its files: every process ends with the process namespace, and
every mount with the mount namespace. The host's settings for apt and pip (mirrors, certificates) are handed over.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path

from tests.checkout import clean_copy

USER = "student"
USER_ID = 1000
HOME = Path("/home") / USER
PLACE = HOME / "railbed"
DEBOOTSTRAP_SCRIPTS = Path("/usr/share/debootstrap/scripts")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")

ENTER = """
set -eu
echo fresh >/proc/sys/kernel/hostname
mount -t overlay machine -o "lowerdir=$LAYERS,upperdir=$CHANGES,workdir=$WORK" "$ROOT"
mount -t proc proc "$ROOT/proc"
if [ "$NETWORK" ]; then
    mount --rbind /sys "$ROOT/sys"
else
    mount -t sysfs sysfs "$ROOT/sys"
    ip link set lo up
fi
mount --rbind /dev "$ROOT/dev"
mount -t tmpfs -o mode=755 tmpfs "$ROOT/run"
mkdir -p "$ROOT/run/lock"
for folder in $FOLDERS; do
    mkdir -p "$ROOT${folder#*=}"
    mount --bind "${folder%%=*}" "$ROOT${folder#*=}"
done
exec chroot "$ROOT" "$@"
"""


@dataclass(frozen=True)
class System:
    """A release: its name, debootstrap's name for it and for its script, and the parts to install from."""

    name: str
    suite: str
    script: str
    components: str = "main"


SYSTEMS = (
    System("Debian 12", "bookworm", "bookworm"),
    System("Ubuntu 22.04", "jammy", "jammy", "main universe"),
    # Its script is the one of all Ubuntu releases, which older versions of debootstrap do not know by this name.
    System("Ubuntu 24.04", "noble", "jammy", "main universe"),
)


class NoMachineError(Exception):
    """A system cannot be made here; the message says why."""


def base_archive(system: System, folder: Path) -> Path:
    """The archive of a system's minimal installation with sudo and one user; made in ``folder`` unless it is there.

    Raises NoMachineError where the system's packages cannot be had.
    """
    archive = folder / f"{system.suite}.tar"
    if archive.exists():
        return archive
    program, script = shutil.which("debootstrap"), DEBOOTSTRAP_SCRIPTS / system.script
    if program is None or not script.exists():
        raise NoMachineError("debootstrap is not installed, or does not know this system: apt-get install debootstrap")
    root = folder / system.suite
    shutil.rmtree(root, ignore_errors=True)
    # The empty mirror is the script's own. A release whose keys the host lacks is taken unchecked: it is only tried.
    # The release's own apt, which has the keys, checks all that Railbed installs.
    made = _run(
        program, "--variant=minbase", "--include=sudo,ca-certificates",
        "--no-check-gpg", system.suite, root, "", script, timeout=1800,
    )  # fmt: skip
    if made.returncode != 0:
        said = [line for line in made.stdout.splitlines() if line.startswith(("E:", "W:"))] or ["no reason given"]
        raise NoMachineError(f"{system.name} cannot be installed here: {said[-1]}")
    # As its installer leaves it: all components, and what was updated since the release.
    source = (root / "etc/apt/sources.list").read_text().split()
    lines = [f"deb {source[1]} {suite} {system.components}\n" for suite in (system.suite, f"{system.suite}-updates")]
    (root / "etc/apt/sources.list").write_text("".join(lines))
    _run("chroot", root, "useradd", "--create-home", "--shell", "/bin/sh", "--uid", str(USER_ID), USER)
    (root / "etc/sudoers.d" / USER).write_text(f"{USER} ALL=(ALL) NOPASSWD: ALL\n")
    (root / "etc/hostname").write_text("fresh\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost fresh\n")
    packed = _run("tar", "-C", root, "-cf", archive.with_suffix(".part"), ".")
    assert packed.returncode == 0, packed.stdout
    archive.with_suffix(".part").rename(archive)
    shutil.rmtree(root)
    return archive


class Machine:
    """A machine in a folder: layers of files that it only reads, and on top of them what it changes.

    ``folders`` of the host are seen in it, each as HOST=MACHINE.
    """

    def __init__(self, layers: Sequence[Path], folders: Sequence[str], folder: Path) -> None:
        self.changes = folder / "changes"
        self._layers, self._folders = tuple(layers), tuple(folders)
        self._work, self._root = folder / "work", folder / "root"
        for made in (self.changes, self._work, self._root):
            made.mkdir()

    @classmethod
    def fresh(cls, archive: Path, folder: Path) -> Machine:
        """A machine with ``archive`` unpacked, the host's settings, and a clean checkout in the user's home."""
        base = folder / "base"
        base.mkdir()
        unpacked = _run("tar", "-C", base, "-xf", archive)
        assert unpacked.returncode == 0, unpacked.stdout
        clean_copy(base / PLACE.relative_to("/"))
        owned = _run("chown", "-R", f"{USER_ID}:{USER_ID}", base / HOME.relative_to("/"))
        assert owned.returncode == 0, owned.stdout
        return cls([base], _hand_over_settings(base), folder)

    def copy(self, folder: Path) -> Machine:
        """Another machine that is as this one is now, as long as this one does not change."""
        return Machine((self.changes, *self._layers), self._folders, folder)

    def found(self, path: Path | str) -> bool:
        """Whether a path is there, in the installation or among what changed."""
        return any((layer / str(path).lstrip("/")).exists() for layer in (self.changes, *self._layers))

    def start(self, *words: str, root: bool = False, network: bool = True) -> subprocess.Popen[str]:
        """Start a command in the checkout, as the user or as root; its output is one text."""
        environment = {
            **os.environ, "LAYERS": ":".join(map(str, self._layers)), "CHANGES": str(self.changes),
            "WORK": str(self._work), "ROOT": str(self._root), "NETWORK": "yes" if network else "",
            "FOLDERS": " ".join(self._folders),
        }  # fmt: skip
        passed_on = [f"{name}={os.environ[name]}" for name in PASSED_ON if name in os.environ]
        inside = [
            "/usr/bin/env", "-i", f"PATH={PATH}", f"HOME={'/root' if root else HOME}", "LC_ALL=C.UTF-8", *passed_on,
            *([] if root else ["setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups"]),
            "/bin/sh", "-c", f"cd {PLACE} && exec {shlex.join(words)}",
        ]  # fmt: skip
        isolation = ["--mount", "--uts", "--pid", "--fork", "--kill-child", *([] if network else ["--net"])]
        return subprocess.Popen(
            ["unshare", *isolation, "sh", "-c", ENTER, "sh", *inside],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        )  # fmt: skip

    def run(
        self, *words: str, root: bool = False, network: bool = True, timeout_s: float = 3600
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; see :meth:`start`."""
        with self.start(*words, root=root, network=network) as process:
            try:
                output = process.communicate(timeout=timeout_s)[0]
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(words, process.returncode, output)

    def cut_short(self, *words: str, when: Callable[[], bool], timeout_s: float = 3600) -> None:
        """Start a command and kill it with all that it started as soon as ``when`` is true."""
        deadline_s = time.monotonic() + timeout_s
        with self.start(*words) as process:
            while not when():
                assert process.poll() is None, f"ended before it was cut short: {process.communicate()[0]}"
                assert time.monotonic() < deadline_s
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)


def _hand_over_settings(base: Path) -> list[str]:
    """Write the host's settings of apt and pip into a machine; gives the folders that they name, HOST=MACHINE."""
    (base / "etc/resolv.conf").unlink(missing_ok=True)
    shutil.copy("/etc/resolv.conf", base / "etc/resolv.conf")
    acquire = [line for line in _run("apt-config", "dump").stdout.splitlines() if line.startswith("Acquire::")]
    (base / "etc/apt/apt.conf.d/90host").write_text("\n".join([*acquire, ""]))
    settings: dict[str, str] = {}
    for line in _run("python3", "-m", "pip", "config", "list").stdout.splitlines():
        key, _, value = line.partition("=")
        settings[key.rpartition(".")[2].strip()] = shlex.split(value)[0].replace("\\n", "\n")
    folders = []
    for word in " ".join(settings.values()).split():
        path = Path(word.removeprefix("file://"))
        if path.is_dir():
            # The pages of an index point to files beside it.
            path = path.parent if path.name == "simple" else path
            folders.append(f"{path}={path}")
        elif path.is_absolute() and path.is_file():
            target = base / path.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    parser = ConfigParser(interpolation=None)
    parser["global"] = settings
    with (base / "etc/pip.conf").open("w") as stream:
        parser.write(stream)
    cache = _run("python3", "-m", "pip", "cache", "dir").stdout.strip()
    return [*folders, *([f"{cache}=/root/.cache/pip"] if Path(cache).is_dir() else [])]


def _run(*words: str | Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=timeout,
    )
