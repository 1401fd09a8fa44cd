"""The hidden fault of a live fabric: set, kept secret until it is found or given up, and how often people guessed."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controller.routing import Routes
from emulator.errors import MysteryError
from emulator.mystery import Fault, FaultKind, Judgement, conceal, draw_fault, fault_kinds, is_wrong, judge

if TYPE_CHECKING:
    from emulator.emulation import Emulation


@dataclass
class _Open:
    """A mystery that nobody has solved; ``hidden`` is what the kernel held of its link when it was set."""

    fault: Fault
    seed: int
    kinds: tuple[FaultKind, ...]
    hidden: Mapping[str, Any]
    tries: int = 0


class MysteryControl:
    """At most one mystery at a time. It is remembered in this process only: no file tells of it."""

    def __init__(self, emulation: Emulation) -> None:
        self._emulation = emulation
        self._open: _Open | None = None
        self._lock = threading.Lock()

    def hide(self, seed: int, kind_names: Sequence[str]) -> dict[str, Any]:
        """Hide the fault of ``seed`` in a healthy fabric; the state as :meth:`state` gives it.

        Raises MysteryError if one is open or something is wrong already, and NotEmulatedError for a kind that this
        kernel lacks.
        """
        emulation = self._emulation
        kinds = fault_kinds(kind_names)
        with self._lock:
            if self._open is not None:
                raise MysteryError("a fault is hidden already: find it with 'solve', or give up with 'solve --give-up'")
            wrong = emulation.links.impairments()
            if wrong:
                raise MysteryError(
                    f"nothing can be hidden while something is wrong ({wrong[0]['link']}): restore all of it with "
                    "'failures --reset' first"
                )
            fault = draw_fault(Routes(emulation.fabric, policy=emulation.policy), emulation.scale, seed, kinds)
            hidden = emulation.links.impair(fault.link_id, dict(fault.what))
            self._open = _Open(fault, seed, kinds, hidden)
        return self.state()

    def state(self) -> dict[str, Any]:
        """Whether one is ``open`` and, if so, its ``seed``, its possible ``kinds`` and the ``tries`` so far."""
        found = self._open
        if found is None:
            return {"open": False}
        kinds = [kind.value for kind in found.kinds]
        return {"open": True, "seed": found.seed, "kinds": kinds, "tries": found.tries}

    def solve(self, component: str) -> dict[str, Any]:
        """Judge an answer: ``judgement``, a ``sentence``, ``tries`` and, once it is right, the ``fault``.

        Raises MysteryError if nothing is hidden, and what LinkControl.targets raises for a component that there is not;
        that is no try.
        """
        links = self._emulation.links.targets(component)
        with self._lock:
            found = self._must_be_open()
            judgement, sentence = judge(self._emulation.fabric, found.fault, component, links)
            found.tries += 1
            if judgement is Judgement.RIGHT:
                self._open = None
        return _answer(judgement, sentence, found)

    def give_up(self) -> dict[str, Any]:
        """End it unsolved; what :meth:`solve` answers, with the judgement ``given-up``."""
        with self._lock:
            found = self._must_be_open()
            self._open = None
        return _answer(Judgement.GIVEN_UP, f"it was {found.fault.link_id}", found)

    def forget(self) -> None:
        """Nothing is hidden any more, because everything was restored."""
        with self._lock:
            self._open = None

    def shown(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """What may be said of a link that does ``state``."""
        found = self._open
        return conceal(state, found.hidden if found else None)

    def shown_impairments(self) -> list[dict[str, Any]]:
        """All links with something wrong that is not hidden."""
        return [one for one in map(self.shown, self._emulation.links.impairments()) if is_wrong(one)]

    def _must_be_open(self) -> _Open:
        if self._open is None:
            raise MysteryError("nothing is hidden in this fabric: 'mystery' hides a fault")
        return self._open


def _answer(judgement: Judgement, sentence: str, found: _Open) -> dict[str, Any]:
    over = judgement in (Judgement.RIGHT, Judgement.GIVEN_UP)
    return {
        "judgement": judgement.value,
        "sentence": sentence,
        "tries": found.tries,
        "open": not over,
        "fault": dict(found.hidden) if over else None,
    }
