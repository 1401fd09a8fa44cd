"""What a new root file system takes over from this machine; texts as apt and pip print them."""

from pathlib import Path

from tests.handover import DEBIAN, Handover, apt_settings, mirror_of, pip_settings

DUMP = """APT::Architecture "amd64";
Acquire "";
Acquire::http "";
Acquire::http::Proxy "http://cache.example:3142/";
Acquire::Check-Valid-Until "false";
Acquire::CompressionTypes::xz "xz";
"""


def test_the_mirror_is_the_one_that_this_machine_uses() -> None:
    targets = ["cdrom:[disc] bookworm", "http://mirror.example/debian bookworm", "http://x.example bookworm-security"]
    assert mirror_of(targets, "bookworm") == "http://mirror.example/debian"
    assert mirror_of(targets, "bookworm-security") == "http://x.example"
    assert mirror_of(targets, "trixie") == mirror_of([], "bookworm") == DEBIAN


def test_only_how_to_reach_sources_is_taken_from_apt() -> None:
    assert apt_settings(DUMP).splitlines() == [
        'Acquire::http::Proxy "http://cache.example:3142/";',
        'Acquire::Check-Valid-Until "false";',
    ]


def test_pips_indexes_are_taken_over_and_folders_of_this_machine_are_not() -> None:
    listed = """:env:.default-timeout='180'
global.cert='/etc/ssl/some.pem'
global.constraint='/etc/constraints.txt'
global.extra-index-url='file:///srv/simple https://wheels.example/simple'
global.find-links='/srv/wheels'
global.timeout='20'
"""
    assert pip_settings(listed, own_authorities=True).splitlines() == [
        "[global]",
        "default-timeout = 180",
        "extra-index-url = https://wheels.example/simple",
        "timeout = 20",
        "cert = /etc/ssl/certs/ca-certificates.crt",
    ]
    assert pip_settings("", own_authorities=False) == "[global]\n"


def test_everything_is_written_below_the_new_root(tmp_path: Path) -> None:
    authority = tmp_path / "own.crt"
    authority.write_text("PEM")
    root = tmp_path / "root"
    Handover(DEBIAN, {"/etc/pip.conf": "[global]\n"}, (authority,)).write(root)
    assert (root / "etc/pip.conf").read_text() == "[global]\n"
    assert (root / "usr/local/share/ca-certificates/own.crt").read_text() == "PEM"
