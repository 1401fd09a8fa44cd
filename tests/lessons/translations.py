"""Which parts of the Japanese pages translate an older English text. Pure, but for the command at the end.

A page and its translation have the same headings in the same order. Below each heading of a translation a comment
names the English section that it was made from by the first digits of its SHA-256: ``<!-- of 1a2b3c4d5e -->``. When the
English section changes, the number is another one, and the section is stale until somebody has translated it again.

    python -m tests.lessons.translations                lists what is stale
    python -m tests.lessons.translations --renew PAGE   after translating: names the English text of today
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.lessons.pages import PAGES, ROOT, without_comment

_HEADING = re.compile(r"#+ ")
_MARK = re.compile(r"^<!-- of ([0-9a-f]{10}) -->$")


@dataclass(frozen=True)
class Section:
    """A heading and what follows until the next; ``line`` counts from 1, ``of`` is what its mark names."""

    heading: str
    line: int
    text: str
    of: str | None

    @property
    def digest(self) -> str:
        """What a translation of this section names."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:10]

    @property
    def fences(self) -> list[str]:
        """The section's fences, without the comments of shell lines, which are translated."""
        found = re.findall(r"^```(\w*)\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)
        return [f"{language}\n{_bare(body) if language == 'sh' else body}" for language, body in found]


def _bare(body: str) -> str:
    return "\n".join(filter(None, (without_comment(line)[0] for line in body.splitlines())))


def sections(text: str) -> list[Section]:
    """A page cut at its headings; lines that look like one within a fence are none."""
    starts: list[int] = []
    lines = text.splitlines()
    fenced = False
    for number, line in enumerate(lines):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and _HEADING.match(line):
            starts.append(number)
    found = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        mark = _MARK.match(lines[start + 1]) if start + 1 < end else None
        body = [line.rstrip() for line in (lines[start], *lines[start + (2 if mark else 1) : end])]
        found.append(Section(lines[start], start + 1, "\n".join(body).strip() + "\n", mark.group(1) if mark else None))
    return found


def translation_of(page: Path) -> Path:
    """Where the Japanese text of an English page is."""
    return page.with_name("README.ja.md") if page == ROOT / "README.md" else page.parent / "ja" / page.name


def problems(original: str, translated: str, name: str) -> list[str]:
    """What is stale or otherwise not the same in a translation; one line each."""
    english, japanese = sections(original), sections(translated)
    if len(english) != len(japanese):
        return [f"{name}: {len(japanese)} sections, but the English page has {len(english)}"]
    found = []
    for one, other in zip(english, japanese, strict=True):
        where = f"{name}:{other.line}: '{other.heading}'"
        if one.heading.split(" ")[0] != other.heading.split(" ")[0]:
            found.append(f"{where} is not of the level of '{one.heading}'")
        if other.of != one.digest:
            found.append(f"{where} is stale: '{one.heading}' is {one.digest} now, translated was {other.of}")
        if one.fences != other.fences:
            found.append(f"{where} does not have the commands and outputs of '{one.heading}'")
    return found


def renewed(original: str, translated: str) -> str:
    """The translation with marks that name the English text of today."""
    lines = translated.splitlines()
    for one, other in reversed(list(zip(sections(original), sections(translated), strict=True))):
        lines[other.line : other.line + (1 if other.of else 0)] = [f"<!-- of {one.digest} -->"]
    return "\n".join(lines) + "\n"


def all_problems() -> list[str]:
    """Of every page that has to have a translation."""
    found = []
    for page in PAGES:
        translation = translation_of(page)
        name = str(translation.relative_to(ROOT))
        if translation.exists():
            found += problems(page.read_text(), translation.read_text(), name)
        else:
            found.append(f"{name}: missing; it translates {page.relative_to(ROOT)}")
    return found


def main() -> int:
    """List what is stale, or renew the marks of translations that are up to date."""
    parser = argparse.ArgumentParser(description="Lists stale translations.")
    parser.add_argument("--renew", nargs="+", type=Path, metavar="PAGE", help="Japanese pages that are up to date")
    arguments = parser.parse_args()
    for translation in arguments.renew or ():
        (page,) = (page for page in PAGES if translation_of(page) == translation.resolve())
        translation.write_text(renewed(page.read_text(), translation.read_text()))
    found = all_problems()
    print("\n".join(found) or "all translations are up to date")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
