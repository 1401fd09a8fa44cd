"""Timelines of changes that the page did not make itself: a flapping link, another console, a run's failure. Pure.

They are put together from what the controller says, so they begin when it noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboard.timeline import noticed

MOST_OPEN = 64
"""Changes that wait for their new rules; of more the oldest are given up."""


@dataclass
class _Change:
    """A change that the controller has noticed and not yet answered everywhere."""

    noticed_s: float
    computed_s: float | None = None
    rules_added: int = 0


class Witness:
    """Takes a controller's events in order, and gives the timeline of each change of a link once it is over."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, bool], _Change] = {}

    def take(self, event: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The timelines that ``event`` completes."""
        name = event["event"]
        if name in ("link-down", "link-up"):
            link, up = str(event["link"]), name == "link-up"
            self._open.pop((link, not up), None)
            self._open[link, up] = _Change(event["t_s"])
            if len(self._open) > MOST_OPEN:
                del self._open[next(iter(self._open))]
        elif name == "repair":
            for change in self._answered(event).values():
                change.computed_s = change.computed_s or event["t_s"]
                change.rules_added += event["rules_added"]
        elif name == "repaired":
            answered = self._answered(event)
            self._open = {key: change for key, change in self._open.items() if key not in answered}
            return [
                noticed("restore" if up else "fail", link, change.noticed_s, change.computed_s, event["t_s"],
                        change.rules_added)
                for (link, up), change in answered.items()
            ]  # fmt: skip
        return []

    def _answered(self, event: Mapping[str, Any]) -> dict[tuple[str, bool], _Change]:
        """The changes that an answer with these links down takes account of."""
        return {key: change for key, change in self._open.items() if (key[0] in event["links_down"]) != key[1]}
