"""What a new root file system takes over from this machine, so that it reaches the same package sources.

Whatever this machine is set to (a mirror, a proxy, certificate authorities of its own) is read from its own tools and
written into the same tools' files there; nothing here knows a host's name but Debian's.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

DEBIAN = "http://deb.debian.org/debian"
OWN_AUTHORITIES = Path("/usr/local/share/ca-certificates")
"""Where Debian's ca-certificates takes a machine's own certificate authorities from, on both sides."""

BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
APT_SETTINGS = ("Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::Retries", "Acquire::Languages")
PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "retries")


@dataclass(frozen=True)
class Handover:
    """``mirror`` of the suite, ``files`` by absolute path, and this machine's own ``authorities`` (PEM files)."""

    mirror: str
    files: Mapping[str, str]
    authorities: tuple[Path, ...]

    def write(self, root: Path) -> None:
        """Write all of it below ``root``; ``update-ca-certificates`` has to be run there afterwards."""
        for name, text in self.files.items():
            path = root / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for authority in self.authorities:
            target = root / str(OWN_AUTHORITIES).lstrip("/") / authority.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(authority, target)


def handover(suite: str) -> Handover:
    """What a new Debian ``suite`` takes over from this machine."""
    targets = _output(["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)", "Created-By: Packages"])
    mirror = mirror_of(targets.splitlines(), suite)
    security = mirror_of(targets.splitlines(), f"{suite}-security", DEBIAN + "-security")
    sources = [f"deb {mirror} {suite} main", f"deb {mirror} {suite}-updates main"]
    sources.append(f"deb {security} {suite}-security main")
    authorities = tuple(sorted(OWN_AUTHORITIES.glob("**/*.crt")))
    files = {
        "/etc/apt/sources.list": "\n".join(sources) + "\n",
        "/etc/apt/apt.conf.d/90handed-over": apt_settings(_output(["apt-config", "dump"])),
        "/etc/pip.conf": pip_settings(_output(["python3", "-m", "pip", "config", "list"]), bool(authorities)),
    }
    return Handover(mirror, files, authorities)


def mirror_of(targets: Iterable[str], suite: str, default: str = DEBIAN) -> str:
    """Where this machine gets ``suite`` from, by apt's "SITE RELEASE" lines; ``default`` if it does not."""
    for line in targets:
        site, _, release = line.partition(" ")
        if release == suite and site.startswith("http"):
            return site
    return default


def apt_settings(dump: str) -> str:
    """The lines of ``apt-config dump`` that say how to reach a source."""
    return "".join(f"{line}\n" for line in dump.splitlines() if line.startswith(APT_SETTINGS) and '""' not in line)


def pip_settings(listed: str, own_authorities: bool) -> str:
    """A pip.conf from ``pip config list``: the indexes and how to reach them, without folders of this machine."""
    lines = ["[global]"]
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        key, text = name.rsplit(".", 1)[-1], value.strip().strip("'\"")
        reachable = " ".join(word for word in text.split() if not re.match(r"file:|/", word))
        if key in PIP_SETTINGS and reachable and not any(one.startswith(f"{key} =") for one in lines):
            lines.append(f"{key} = {reachable}")
    if own_authorities:
        lines.append(f"cert = {BUNDLE}")
    return "\n".join(lines) + "\n"


def _output(command: list[str]) -> str:
    """What a tool prints; nothing if it is not there or fails, for then there is nothing to take over."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""
