"""Whether what commands printed is what a page shows. Pure.

A page shows either everything, or marks what it leaves out: a line ``...`` stands for any lines, and `` ...``
at the end of a line for its rest. Spaces are not counted, nor empty lines, nor the length of a table's rules, because
the width of a column hangs on the numbers in it. A date and time as in ``20261130-114732`` stands for any.
"""

from __future__ import annotations

import re
from functools import cache

from tests.lessons.pages import EXACT, Allowance, Output

CUT = "..."
COUNTS_BELOW = 100
"""Whole numbers below this, without a unit, are counts: they must be equal whatever the allowance says."""

_DATE_TIME = re.compile(r"\b\d{8}-\d{6}\b|\b\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\b")
_RULE = re.compile(r"[─-]{3,}|─+")
# A number that stands alone: no part of an id (d0r1), of an address (10.0.0.3/255.0.0.255) or of a fraction (24/24).
_NUMBER = re.compile(r"(?<![\w./-])([+-]?\d[\d,]*(?:\.\d+)?)(?=(?:ms|s)?(?![\w/]|\.\d|-\w))")
_UNIT = re.compile(r"\s?(?:ms|s|%|[MG]bit/s|[kMGT]i?B)(?!\w)")


def why_different(shown: Output, printed: str) -> str:
    """One sentence that says where ``printed`` is not what is shown; empty if it is."""
    wanted = [_tidy(line) for line in shown.lines if line.strip()]
    actual = [_tidy(line) for line in printed.splitlines() if line.strip()]
    furthest = [0, 0]

    @cache
    def fits(one: int, other: int) -> bool:
        """Whether the shown lines from ``one`` on are the printed ones from ``other`` on."""
        furthest[:] = max(furthest, [one, other])
        if one == len(wanted):
            return other == len(actual)
        if wanted[one] == CUT:
            return any(fits(one + 1, later) for later in range(other, len(actual) + 1))
        return (
            other < len(actual) and same_line(wanted[one], actual[other], shown.allowance) and fits(one + 1, other + 1)
        )

    if fits(0, 0):
        return ""
    one, other = furthest
    found = repr(actual[other]) if other < len(actual) else "nothing more"
    expected = repr(wanted[one]) if one < len(wanted) else "nothing more"
    return f"shown: {expected}; printed: {found}"


def same_line(shown: str, printed: str, allowance: Allowance = EXACT) -> bool:
    """Whether one printed line is the shown one, measured numbers within ``allowance``."""
    shown, printed = _tidy(shown), _tidy(printed)
    if shown.endswith(f" {CUT}"):
        words = len(shown.split()) - 1
        if len(printed.split()) <= words:
            return False
        shown, printed = shown[: -len(CUT) - 1], " ".join(printed.split()[:words])
    if allowance == EXACT:
        return shown == printed
    shown_text, shown_numbers = _taken_apart(shown)
    printed_text, printed_numbers = _taken_apart(printed)
    return shown_text == printed_text and all(
        _same_number(one, other, allowance) for one, other in zip(shown_numbers, printed_numbers, strict=True)
    )


def _tidy(line: str) -> str:
    return _DATE_TIME.sub("DATE-TIME", _RULE.sub("─", " ".join(line.split())))


def _taken_apart(line: str) -> tuple[str, list[tuple[str, bool]]]:
    """A line with its numbers left out, and the numbers, each with whether it is only a count."""
    numbers = [
        (found.group(), _is_count(found.group()) and not _UNIT.match(line, found.end()))
        for found in _NUMBER.finditer(line)
    ]
    return _NUMBER.sub("NUMBER", line), numbers


def _is_count(text: str) -> bool:
    return text.isdigit() and int(text) < COUNTS_BELOW


def _same_number(shown: tuple[str, bool], printed: tuple[str, bool], allowance: Allowance) -> bool:
    (one, is_count), (other, _) = shown, printed
    if is_count:
        return one == other
    resolution = 10.0 ** -len(one.partition(".")[2])
    return allowance.holds(float(one.replace(",", "")), float(other.replace(",", "")), resolution)
