"""The two sources of a page: running fabrics, and a recording."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from dashboard.actions import CHANGES, checked, likewise, perform
from dashboard.errors import ActionError
from dashboard.live import Board
from dashboard.offers import offers
from dashboard.player import Player
from dashboard.recording import Shown
from dashboard.workload import WorkloadRunner
from topologies.errors import RailbedError

if TYPE_CHECKING:
    from emulator.manager import RunningFabric

Publish = Callable[[dict[str, Any]], None]


class FabricSource:
    """Running fabrics beside each other; each is attached to anew after it has ended and come up again."""

    def __init__(self, attach: Mapping[str, Callable[[], RunningFabric]]) -> None:
        """``attach`` gives each fabric by its name, in the order in which they are shown."""
        self._attach = attach
        self._boards: list[Board] = []
        self._runner: WorkloadRunner | None = None
        self._publish: Publish = lambda _message: None

    async def run(self, publish: Publish) -> None:
        """Publish what happens on the fabrics."""
        loop = asyncio.get_running_loop()
        self._publish = lambda message: _call(loop, publish, message)
        publish({"event": "boards", "names": list(self._attach)})
        narrow = len(self._attach) > 1
        self._boards = [
            Board(name, attach, self._publish, self._began, narrow) for name, attach in self._attach.items()
        ]
        self._runner = WorkloadRunner(self._boards, self._publish)
        for board in self._boards:
            board.start()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(self._end)

    def _end(self) -> None:
        if self._runner is not None:
            self._runner.close()
        for board in self._boards:
            board.stop()

    def _began(self) -> None:
        """A fabric has come up: what can be started depends on all of them."""
        fabrics = [board.fabric for board in self._boards]
        known = [fabric for fabric in fabrics if fabric is not None]
        if len(known) == len(fabrics):
            self._publish({"event": "offers", "offers": [offer.to_dict() for offer in offers(known)]})

    def act(self, order: Any) -> list[dict[str, Any]]:
        """Carry out an action on the fabrics that it is about; the messages about it."""
        good = checked(order)
        if self._runner is None:
            raise ActionError("the page has only just begun; try again")
        if good["verb"] == "start":
            return [self._runner.start(good["workload"])]
        if good["verb"] == "stop":
            return [self._runner.stop()]
        board = self._board(good["on"])
        running = board.attach()
        orders = [(board, running, good)]
        if good.get("both"):
            others = [(other, other.attach()) for other in self._boards if other is not board]
            orders += [(other, there, likewise(good, running.fabric, there.fabric)) for other, there in others]
        return self._perform(orders)

    def _board(self, name: str) -> Board:
        for board in self._boards:
            if name in ("", board.name):
                return board
        names = ", ".join(board.name for board in self._boards)
        raise ActionError(f"the page shows no fabric '{name}': it shows {names}")

    def _perform(self, orders: Sequence[tuple[Board, RunningFabric, dict[str, Any]]]) -> list[dict[str, Any]]:
        """Carry orders out at the same time. If one fails, what became of the others is shown all the same."""
        messages: list[dict[str, Any]] = []
        errors: list[RailbedError] = []

        def carry_out(board: Board, running: RunningFabric, order: dict[str, Any]) -> None:
            try:
                with board.changing() if order["verb"] in CHANGES else nullcontext():
                    message = perform(running, order)
            except RailbedError as error:
                errors.append(error)
                return
            if message["event"] == "mystery":
                board.hidden = {key: value for key, value in message.items() if key not in ("event", "answer")}
            messages.append({**message, "on": board.name})

        threads = [threading.Thread(target=carry_out, args=one) for one in orders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            for message in messages:
                self._publish(message)
            raise errors[0]
        return messages

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

    def act(self, _order: Any) -> list[dict[str, Any]]:
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
