"""What somebody who joins must be told: of states the last message, of everything else the last few. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")

STATE = ("fabric", "loads", "impairments", "run", "gone", "replay", "workload", "offers", "mystery")
"""Messages of which only the last one of each fabric matters."""

BOARDS = "boards"
"""The message that names the fabrics of the page, which begins everything anew."""

KEPT = 100


class Backlog(Generic[Item]):
    """Keeps ``kept`` messages that are no state. An item stands for a message: itself, or its encoded form."""

    def __init__(self, kept: int = KEPT) -> None:
        self._state: dict[tuple[str, str], Item] = {}
        self._others: deque[tuple[str, Item]] = deque(maxlen=kept)

    def add(self, message: Mapping[str, Any], item: Item) -> None:
        """Take one more message. One that begins a fabric anew (``on`` says which) makes what was said of it void."""
        event, on = message["event"], message.get("on", "")
        if event == BOARDS:
            self._state.clear()
            self._others.clear()
        elif event == "fabric":
            self._state = {key: kept for key, kept in self._state.items() if key[1] != on}
            of_others = [(other, kept) for other, kept in self._others if other != on]
            self._others.clear()
            self._others.extend(of_others)
        if event in STATE or event == BOARDS:
            self._state[event, on] = item
        else:
            self._others.append((on, item))

    def items(self) -> list[Item]:
        """What a newcomer is told, states first."""
        return [*self._state.values(), *(item for _, item in self._others)]
