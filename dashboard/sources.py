"""The two sources of a page: a running fabric, and a recording."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dashboard.actions import checked, perform
from dashboard.errors import ActionError
from dashboard.live import LiveSource
from dashboard.player import Player
from dashboard.recording import Shown

if TYPE_CHECKING:
    from emulator.manager import RunningFabric

Publish = Callable[[dict[str, Any]], None]


class FabricSource:
    """A running fabric; ``attach`` gives it, and gives it anew after it has ended and come up again."""

    def __init__(self, attach: Callable[[], RunningFabric]) -> None:
        self._attach = attach
        self._live: LiveSource | None = None

    async def run(self, publish: Publish) -> None:
        """Publish what happens on the fabric."""
        loop = asyncio.get_running_loop()
        live = self._live = LiveSource(self._attach, lambda message: _call(loop, publish, message))
        live.start()
        try:
            await asyncio.Event().wait()
        finally:
            live.stop()

    def act(self, order: Any) -> dict[str, Any]:
        """Carry out an action on the fabric."""
        try:
            return perform(self._attach(), checked(order))
        finally:
            if self._live is not None:
                self._live.look_again()

    async def replay(self, _order: Any) -> None:
        """Nothing is replayed here."""
        raise ActionError("this page shows a running fabric: its time can't be changed")


class ReplaySource:
    """A recording, at a speed."""

    def __init__(self, shown: Sequence[Shown], speed: float) -> None:
        self._shown = shown
        self._speed = speed
        self._player: Player | None = None

    async def run(self, publish: Publish) -> None:
        """Play."""
        self._player = Player(self._shown, publish, self._speed)
        await self._player.play()

    def act(self, _order: Any) -> dict[str, Any]:
        """Nothing can be changed in what has been."""
        raise ActionError("this page shows a recording: nothing can be changed in it")

    async def replay(self, order: Any) -> None:
        """Change the moment or the speed."""
        if self._player is not None:
            self._player.order(order)


def _call(loop: asyncio.AbstractEventLoop, publish: Publish, message: dict[str, Any]) -> None:
    try:
        loop.call_soon_threadsafe(publish, message)
    except RuntimeError:
        return  # the page has ended meanwhile
