"""A hidden fault for people to find: drawn by a seed, kept out of what lists faults, and the answers judged. Pure.

Only silent faults are drawn: no port goes down, so the controller says nothing and traffic alone shows them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from controller.routing import Routes
from emulator.errors import MysteryError
from topologies.model import Fabric, Gpu, Link, LinkKind
from topologies.near import did_you_mean
from topologies.scale import Scale, link_rate_mbps


class FaultKind(str, Enum):
    """What may be hidden. The last two need a kernel with netem."""

    BLACKHOLE = "blackhole"
    ONE_WAY = "one-way"
    DEGRADE = "degrade"
    DELAY = "delay"
    LOSS = "loss"


DEFAULT_KINDS = (FaultKind.BLACKHOLE, FaultKind.ONE_WAY, FaultKind.DEGRADE)
"""What every kernel can do, so that a seed hides the same fault on every machine."""

RATE_SHARES = (0.1, 0.25, 0.5)
DELAYS_MS = (20.0, 50.0)
LOSS_SHARES = (0.02, 0.05)

_HEALTHY: dict[str, Any] = {"blackhole": [], "rate_mbps": None, "delay_ms": 0.0, "jitter_ms": 0.0, "loss_share": 0.0}


class Judgement(str, Enum):
    """How good an answer is. CLOSE: another link of the same switch, GPU or rail, or one of these as a whole."""

    RIGHT = "right"
    CLOSE = "close"
    WRONG = "wrong"
    GIVEN_UP = "given-up"


@dataclass(frozen=True)
class Fault:
    """One fault on one link; ``what`` is the change that LinkControl.impair makes."""

    link_id: str
    kind: FaultKind
    what: Mapping[str, Any]


def fault_kinds(names: Sequence[str]) -> tuple[FaultKind, ...]:
    """The kinds of these names in their own order, the default ones for none; raises MysteryError for unknown ones."""
    if not names:
        return DEFAULT_KINDS
    known = [kind.value for kind in FaultKind]
    for name in names:
        if name not in known:
            raise MysteryError(f"there is no fault '{name}': {did_you_mean(name, known)}Known: {', '.join(known)}")
    return tuple(kind for kind in FaultKind if kind.value in names)


def draw_fault(routes: Routes, scale: Scale, seed: int, kinds: Sequence[FaultKind]) -> Fault:
    """The fault of ``seed``: on a link that carries traffic between some GPUs on its healthy path.

    The same fabric, routes, scale, seed and kinds give the same fault. Raises MysteryError if no link carries any.
    """
    # A text as seed is hashed the same on all versions and machines.
    chance = random.Random(f"mystery {seed}")
    links = list(routes.fabric.failure_targets())
    chance.shuffle(links)
    link = next((link for link in links if _carries(routes, link)), None)
    if link is None:
        raise MysteryError("nothing can be hidden in this fabric: no link of it carries traffic between two GPUs")
    kind = chance.choice(list(kinds))
    return Fault(link.id, kind, _change(kind, chance, _felt_rate_mbps(routes.fabric, link, scale)))


def _felt_rate_mbps(fabric: Fabric, link: Link, scale: Scale) -> float:
    """The rate below which a link slows a flow of a NIC's rate down; an NVLink has much to spare."""
    rates = [link_rate_mbps(one, scale) for one in fabric.failure_targets() if one.kind is LinkKind.NIC]
    return min([link_rate_mbps(link, scale), *rates[:1]])


def _change(kind: FaultKind, chance: random.Random, felt_rate_mbps: float) -> dict[str, Any]:
    if kind is FaultKind.BLACKHOLE:
        return {"blackhole": "both"}
    if kind is FaultKind.ONE_WAY:
        return {"blackhole": chance.choice(("out", "in"))}
    if kind is FaultKind.DEGRADE:
        return {"rate_mbps": felt_rate_mbps * chance.choice(RATE_SHARES)}
    if kind is FaultKind.DELAY:
        return {"delay_ms": chance.choice(DELAYS_MS)}
    return {"loss_share": chance.choice(LOSS_SHARES)}


def _carries(routes: Routes, link: Link) -> bool:
    for src, dst in _pairs_near(routes.fabric, link):
        path = routes.path(src, dst)
        if path is not None and link.id in path.links:
            return True
    return False


def _pairs_near(fabric: Fabric, link: Link) -> Iterator[tuple[Gpu, Gpu]]:
    """All ordered pairs, first those from a GPU at the end of the link, if there is one."""
    sources = sorted(fabric.gpus, key=lambda gpu: gpu.switch_id not in (link.a, link.b))
    return ((src, dst) for src in sources for dst in fabric.gpus if src != dst)


def conceal(state: Mapping[str, Any], hidden: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a link does (LinkImpairment.to_dict) without what is ``hidden`` on it, read when it was hidden.

    What somebody has set since is shown: only values that are exactly the hidden ones are replaced by healthy ones.
    """
    shown = dict(state)
    if hidden is not None and hidden["link"] == state["link"]:
        shown.update({name: healthy for name, healthy in _HEALTHY.items() if state[name] == hidden[name]})
    return shown


def is_wrong(state: Mapping[str, Any]) -> bool:
    """Whether anything is the matter with a link that does this."""
    return bool(state["down"]) or any(state[name] != healthy for name, healthy in _HEALTHY.items())


def judge(fabric: Fabric, fault: Fault, component: str, links: Sequence[Link]) -> tuple[Judgement, str]:
    """How good the answer ``component`` is, and a sentence; ``links`` are those that a failure of it would mean."""
    if component == fault.link_id:
        return Judgement.RIGHT, f"right: it is {fault.link_id}"
    faulty = fabric.link(fault.link_id)
    if component not in fabric.link_by_id:
        if faulty in links:
            return Judgement.CLOSE, f"close: it is one of the links of {component}; which one?"
        return Judgement.WRONG, f"wrong: the fault is elsewhere than on {component}"
    for one in links:
        if {one.a, one.b} & {faulty.a, faulty.b}:
            return Judgement.CLOSE, f"close: not {component}, but another link of a switch or GPU that it ends at"
        if {one.kind, faulty.kind} == {LinkKind.NIC} and _rail(fabric, one) == _rail(fabric, faulty):
            return Judgement.CLOSE, f"close: not {component}, but another link of its rail"
    return Judgement.WRONG, f"wrong: the fault is elsewhere than on {component}"


def _rail(fabric: Fabric, nic_link: Link) -> int:
    return fabric.switch_by_id[nic_link.a].rail
