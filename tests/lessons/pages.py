"""Pages with commands and what they print, read from Markdown. Pure: text in, blocks out.

The convention is written down for readers in ``docs/lessons/README.md``: a fence of the language ``sh`` holds commands,
one of the language ``output`` what the commands in the fence before it print, all of them together and in order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
INDEX = ROOT / "docs" / "lessons" / "README.md"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs" / "lessons").glob("*.md")))

LANGUAGES = {"sh", "output", "text", "yaml", "python"}
_FENCE = re.compile(r"^(\s*)```(.*)$")
_ALLOWANCE = re.compile(r"\((?:numbers within (?:(\d+) %|a factor of (\d+))|times are your machine's)\)")
_EXIT_CODE = re.compile(r"exit code (\d+)\b")
_ROW = re.compile(r"^\| \[[^\]]+\]\(([^)]+)\) \| `([^`]+)` \| (.+) \|$", re.MULTILINE)


class PageError(Exception):
    """A page that breaks the convention; says the page and the line."""


@dataclass(frozen=True)
class Allowance:
    """How far a measured number may be from the one that is shown: ``percent`` of it, or up to ``factor`` times.

    An infinite factor lets any number pass that is not negative: latencies of the reader's own machine.
    """

    percent: float = 0.0
    factor: float = 1.0

    def holds(self, shown: float, measured: float, resolution: float) -> bool:
        """Whether ``measured`` is near enough to ``shown``, which is written in steps of ``resolution``."""
        if abs(measured - shown) <= max(abs(shown) * self.percent / 100, resolution / 2):
            return True
        if self.factor == float("inf"):
            return measured >= 0
        return shown * measured > 0 and 1 / self.factor <= measured / shown <= self.factor


EXACT = Allowance()


@dataclass(frozen=True)
class Command:
    """One command as it is typed; ``line`` counts from 1."""

    text: str
    line: int
    exit_code: int = 0

    @property
    def needs_root(self) -> bool:
        """Whether a reader has to be root for it."""
        return self.text.startswith("sudo ")


@dataclass(frozen=True)
class Output:
    """What is shown below commands."""

    lines: tuple[str, ...]
    line: int
    allowance: Allowance = EXACT


@dataclass(frozen=True)
class Block:
    """Commands that are typed one after the other, and what they print; ``None`` where nothing is shown."""

    commands: tuple[Command, ...]
    output: Output | None = None


@dataclass(frozen=True)
class NotRun:
    """A command that the tests leave out: the page, the command as it is typed, and why."""

    page: Path
    command: str
    why: str


@dataclass
class _Fence:
    language: str
    line: int
    lines: list[str] = field(default_factory=list)


def fences(text: str, page: str) -> list[tuple[_Fence, str]]:
    """Every fence of a page with the paragraph before it; raises PageError for one that cannot be read for sure."""
    found: list[tuple[_Fence, str]] = []
    paragraph: list[str] = []
    open_fence: _Fence | None = None
    ended = False
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if fence and fence.group(1):
            raise PageError(f"{page}:{number}: a fence must begin in the first column")
        if fence and open_fence is None:
            if fence.group(2) not in LANGUAGES:
                raise PageError(f"{page}:{number}: unknown language '{fence.group(2)}': use {sorted(LANGUAGES)}")
            open_fence = _Fence(fence.group(2), number)
        elif fence and open_fence is not None:
            if fence.group(2):
                raise PageError(f"{page}:{number}: the fence of line {open_fence.line} is not closed")
            found.append((open_fence, " ".join(paragraph)))
            open_fence, paragraph = None, []
        elif open_fence is not None:
            open_fence.lines.append(line)
        elif not line.strip():
            ended = True
        else:
            paragraph = [line.strip()] if ended else [*paragraph, line.strip()]
            ended = False
    if open_fence is not None:
        raise PageError(f"{page}:{open_fence.line}: the fence is not closed")
    return found


def without_comment(line: str) -> tuple[str, str]:
    """A shell line and its comment, which begins with `` #``."""
    if line.lstrip().startswith("#"):
        return "", line.lstrip()[1:].strip()
    command, _, comment = line.partition(" #")
    return command.rstrip(), comment.strip()


def blocks(text: str, page: str) -> list[Block]:
    """The commands of a page with their outputs, in order; raises PageError if the page breaks the convention."""
    found: list[Block] = []
    before_commands = ""
    for fence, before in fences(text, page):
        if fence.language == "sh":
            found.append(Block(_commands(fence, page)))
            before_commands = before
        elif fence.language == "output":
            if not found or found[-1].output is not None:
                raise PageError(f"{page}:{fence.line}: an output without commands of its own")
            allowance = _ALLOWANCE.search(before or before_commands)
            shown = Output(tuple(fence.lines), fence.line, _allowance(allowance) if allowance else EXACT)
            found[-1] = Block(found[-1].commands, shown)
    return found


def _commands(fence: _Fence, page: str) -> tuple[Command, ...]:
    commands, begun, begun_line = [], "", 0
    for number, line in enumerate(fence.lines, fence.line + 1):
        text, comment = without_comment(line)
        begun, begun_line = f"{begun}{text.strip()}", begun_line or number
        if begun.endswith("\\"):
            begun = begun[:-1].rstrip() + " "
            continue
        if begun.endswith("&"):
            raise PageError(f"{page}:{number}: a command in the background has no output that could be checked")
        if begun:
            code = _EXIT_CODE.search(comment)
            commands.append(Command(begun, begun_line, int(code.group(1)) if code else 0))
        begun, begun_line = "", 0
    if begun:
        raise PageError(f"{page}:{begun_line}: the command is not finished")
    return tuple(commands)


def _allowance(found: re.Match[str]) -> Allowance:
    percent, factor = found.groups()
    return Allowance(percent=float(percent)) if percent else Allowance(factor=float(factor or "inf"))


def not_run(index: str, folder: Path) -> list[NotRun]:
    """The rows of the table below the heading "Not run" of the index page; links count from ``folder``."""
    _, _, section = index.partition("\n## Not run\n")
    section = section.partition("\n## ")[0]
    return [NotRun((folder / page).resolve(), command, why.strip()) for page, command, why in _ROW.findall(section)]
