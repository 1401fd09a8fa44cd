"""What the documents say must hold: links resolve, commands and options exist, constants are the code's."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from cli.main import COMMANDS, railbed
from emulator import iperf3, load, shape
from emulator.host_settings import HOST_SYSCTLS
from topologies.presets import PRESETS
from topologies.scale import DEFAULT_TIME, LARGEST_RATE_MBPS, NIC_FLOOR_MBPS, SMALLEST_RATE_MBPS

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "README.ja.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")

COMING = {ROOT / "docs" / "controller.md"}
"""Pages that are being written on another branch; a link to them may be there first."""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """The text of a document without its code blocks."""
    return FENCE.sub("", path.read_text())


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def shell_lines() -> Iterator[tuple[Path, str]]:
    """Every line of the documents' shell blocks, without its comment."""
    for path in DOCUMENTS:
        for language, block in FENCE.findall(path.read_text()):
            if language == "sh":
                for line in block.replace("\\\n", " ").splitlines():
                    command = line.split(" #")[0].strip()
                    if command and not command.startswith("#"):
                        yield path, command


@cache
def parameters(command_name: str) -> frozenset[str]:
    """The long options of a command, ``--help`` aside."""
    command = railbed.get_command(click.Context(railbed), command_name)
    assert command is not None
    return frozenset(
        option
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
        if option.startswith("--")
    )


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_resolve(path: Path) -> None:
    broken = []
    for target in LINK.findall(prose(path)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        pointed = (path.parent / file).resolve() if file else path
        if pointed in COMING and not pointed.exists():
            continue
        if not pointed.exists() or (anchor and anchor not in anchors(pointed)):
            broken.append(target)
    assert broken == []


def test_the_links_that_are_checked_are_found() -> None:
    assert "docs/results.md" in LINK.findall(prose(ROOT / "README.md"))
    assert "fidelity" in anchors(ROOT / "docs" / "fidelity.md")


def test_every_picture_is_shown_and_small() -> None:
    shown = {
        (path.parent / target).resolve() for path in DOCUMENTS for target in LINK.findall(prose(path))
        if target.endswith(".png")
    }  # fmt: skip
    pictures = set((ROOT / "docs" / "pictures").iterdir())
    assert pictures
    assert pictures == shown
    assert all(picture.stat().st_size < 150_000 for picture in pictures)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_commands_page_has_the_options_of_its_help(command: str) -> None:
    text = (ROOT / "docs" / "commands" / f"{command}.md").read_text()
    usage = text.split("\n\n")[1]
    table = "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `-"))
    # A usage that says [options] leaves them to the table; one that spells them out needs none.
    assert set(OPTION.findall(usage + table)) == parameters(command)


def test_commands_in_shell_blocks_are_known_with_their_options() -> None:
    unknown, seen = [], set()
    for path, line in shell_lines():
        words = shlex.split(line)
        words = words[1:] if words[0] == "sudo" else words
        if words[0] not in ("./railbed", "railbed"):
            continue
        words = words[: words.index("--")] if "--" in words else words  # what follows is another program's
        command = next((word for word in words[1:] if not word.startswith("-")), "")
        seen.add(command)
        if command not in COMMANDS:
            unknown.append(f"{name(path)}: {line}")
            continue
        options = {option for word in words[1:] for option in OPTION.findall(word)}
        unknown += [f"{name(path)}: {line}: {option}" for option in sorted(options - parameters(command))]
    assert unknown == []
    assert {"demo", "test", "up", "fail"} <= seen


def test_benchmarks_in_shell_blocks_exist_with_their_options() -> None:
    unknown, seen = [], set()
    for path, line in shell_lines():
        words = shlex.split(line)
        for script in (word for word in words if word.startswith("benchmarks/")):
            seen.add(script)
            if not (ROOT / script).exists():
                unknown.append(f"{name(path)}: {line}")
                continue
            options = set(OPTION.findall(line))
            source = (ROOT / script).read_text()
            unknown += [f"{name(path)}: {line}: {one}" for one in sorted(options) if f'"{one}"' not in source]
    assert unknown == []
    assert {"benchmarks/fidelity.py", "benchmarks/startup.py"} <= seen


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_commands_named_in_the_text_are_known(path: Path) -> None:
    named = set(re.findall(r"`(?:sudo )?(?:\./)?railbed ([a-z]+)\b", prose(path)))
    assert named - set(COMMANDS) == set()


def test_the_readme_names_the_supported_versions() -> None:
    text = (ROOT / "README.md").read_text()
    wanted = re.search(r'python_requires=">=([\d.]+)"', (ROOT / "setup.py").read_text())
    assert wanted
    assert re.findall(r"Python ([\d.]+\d) or newer", text) == [wanted.group(1)]
    assert sys.version_info[:2] >= tuple(int(part) for part in wanted.group(1).split("."))
    for system in ("Debian 12", "Ubuntu 22.04", "24.04"):
        assert system in text


def test_the_readme_leads_to_the_two_commands_and_says_how_to_cite() -> None:
    text = (ROOT / "README.md").read_text()
    assert "./railbed demo" in text
    assert "./railbed test" in text
    assert "(CITATION.cff)" in text


def test_every_public_name_in_the_text_exists() -> None:
    """Files that the text names in backticks are there."""
    missing = []
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for file in re.findall(r"`((?:[a-z]+/)+[a-z0-9_-]+\.(?:py|yaml|txt|toml))`", prose(path)):
            if not (ROOT / file).exists():
                missing.append(f"{name(path)}: {file}")
    assert missing == []


def test_the_default_scale_is_the_one_in_the_text() -> None:
    text = (ROOT / "docs" / "scale.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (\d+) Mbit/s \|", text, re.MULTILINE)
    assert [(int(gpus), float(rate)) for gpus, rate in rows] == list(NIC_FLOOR_MBPS)
    assert f"time factor is {DEFAULT_TIME:,.0f}" in text
    assert f"from {SMALLEST_RATE_MBPS:g} Mbit/s to {LARGEST_RATE_MBPS:,.0f} Mbit/s" in text


def test_the_presets_are_the_ones_in_the_text() -> None:
    text = (ROOT / "docs" / "scale.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (\d+) \| ([\d,]+) \| ([\d,]+) \|", text, re.MULTILINE)
    stated = {row[0]: tuple(int(cell.replace(",", "")) for cell in row[1:]) for row in rows}
    assert stated == {
        one.name: (one.gpus_per_domain, int(one.nvlink_rate_mbps / 1000), int(one.nic_rate_mbps / 1000))
        for one in PRESETS.values()
    }


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("fidelity.md", f"burst of {shape.BURST_S * 1000:.0f} ms"),
        ("fidelity.md", f"room for {shape.WINDOWS_PER_QUEUE} windows"),
        ("fidelity.md", f"about {shape.WINDOW_S * 1000:.0f} ms of the link's rate"),
        ("fidelity.md", f"{shape.PAYLOAD_BYTES}/{shape.FRAME_BYTES}"),
        ("fidelity.md", f"`tcp_pacing_ca_ratio` {HOST_SYSCTLS['net/ipv4/tcp_pacing_ca_ratio']}"),
        ("fidelity.md", f"`tcp_min_tso_segs` {HOST_SYSCTLS['net/ipv4/tcp_min_tso_segs']}"),
        ("fidelity.md", f"waited more than {load.MOST_WAIT_SHARE:.0%}".replace("%", " %")),
        ("fidelity.md", f"turns took more than {load.MOST_LOOP_S * 1000:.0f} ms"),
        ("fidelity.md", f"less than {load.LEAST_SATURATED_SHARE:.0%}".replace("%", " %")),
        ("iperf3.md", f"{iperf3.START_S} s"),
        ("iperf3.md", f"`-l {iperf3.BLOCK_BYTES}`"),
        ("iperf3.md", f"every {iperf3.INTERVAL_S} s"),
    ],
)
def test_constants_are_the_ones_in_the_text(page: str, sentence: str) -> None:
    assert sentence in " ".join((ROOT / "docs" / page).read_text().split())
