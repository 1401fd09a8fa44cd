"""What a viewer may ask of a fabric: checked here, done by the fabric's own interface, never by a shell."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dashboard.errors import ActionError
from dashboard.pairing import counterpart
from dashboard.timeline import timeline
from emulator.names import link_interfaces
from emulator.rundir import MAX_NAME_LENGTH
from topologies.model import Fabric
from topologies.near import did_you_mean

if TYPE_CHECKING:
    from emulator.manager import RunningFabric

_ID = re.compile(r"[a-z][a-z0-9#-]{0,39}\Z")
_DIRECTIONS = ("both", "out", "in")
MOST_WORKLOAD_NAME = 200
MOST_SEED = 1_000_000

CHANGES = ("fail", "restore", "degrade", "blackhole", "flap")
"""Verbs that change a fabric."""


FOR_ALL = ("start", "stop")
"""Verbs that are about all fabrics of the page."""


def checked(order: Any) -> dict[str, Any]:
    """An order as it may be carried out, with every value that its verb needs; raises ActionError for any other.

    ``on`` names the fabric of the page that is meant (empty: the first one); ``both`` says whether the other fabrics
    are treated likewise.
    """
    if not isinstance(order, dict) or not isinstance(order.get("verb"), str):
        raise ActionError("an action is a JSON object with a 'verb'")
    verb = order["verb"]
    if verb not in _NEEDED:
        raise ActionError(f"there is no action '{verb}': {did_you_mean(verb, _NEEDED)}known: {', '.join(_NEEDED)}")
    needed = dict(_NEEDED[verb])
    if verb not in FOR_ALL:
        order = {"on": "", **order}
        needed["on"] = _on
    if verb in CHANGES:
        order = {"both": False, **order}
        needed["both"] = _flag
    for name in order:
        if name != "verb" and name not in needed:
            raise ActionError(f"the action '{verb}' knows no '{name}'")
    return {"verb": verb, **{name: check(name, order.get(name)) for name, check in needed.items()}}


def likewise(order: Mapping[str, Any], fabric: Fabric, other: Fabric) -> dict[str, Any]:
    """A change of ``fabric`` as one of ``other``: its counterpart, degraded to the same share of its rate."""
    target = counterpart(fabric, order["target"], other)
    made = {**order, "target": target}
    if "rate_mbps" in order:
        made["rate_mbps"] = order["rate_mbps"] * other.link(target).rate_mbps / fabric.link(order["target"]).rate_mbps
    return made


def perform(fabric: RunningFabric, order: Mapping[str, Any]) -> dict[str, Any]:
    """Carry a checked order out; the message that viewers are shown. Raises what the fabric raises."""
    verb = order["verb"]
    if verb in ("fail", "restore"):
        return _change(fabric, verb, order["target"])
    if verb == "path":
        return {"event": "path", "src": order["src"], "dst": order["dst"], **_path(fabric, order)}
    if verb in ("mystery", "solve", "give-up"):
        return _mystery(fabric, order)
    values = {name: value for name, value in order.items() if name not in ("verb", "on", "both")}
    target = values.pop("target")
    if verb == "degrade":
        state = fabric.degrade(target, values["rate_mbps"])
    elif verb == "blackhole":
        state = fabric.blackhole(target, values["direction"])
    else:
        state = fabric.flap(target, values["down_s"], values["up_s"], values["count"])
    return {"event": "action", "action": verb, "target": target, "values": values, "state": state}


def _mystery(fabric: RunningFabric, order: Mapping[str, Any]) -> dict[str, Any]:
    """Hide a fault, or judge who says where it is; the message about the mystery."""
    if order["verb"] == "mystery":
        seed = order["seed"]
        return mystery(fabric.hide_fault(secrets.randbelow(MOST_SEED) if seed is None else seed))
    answer = fabric.solve(order["target"]) if order["verb"] == "solve" else fabric.give_up()
    return mystery(fabric.mystery(), answer)


def mystery(state: Mapping[str, Any], answer: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The message about what is hidden in a fabric, and about an answer that was judged, if there was one."""
    return {"event": "mystery", **state, "answer": None if answer is None else dict(answer)}


def _change(fabric: RunningFabric, verb: str, target: str) -> dict[str, Any]:
    """Fail or restore; a single link is changed under a stream of datagrams, which tells the gap."""
    if target in fabric.fabric.link_by_id:
        if verb == "restore":
            fabric.stop_flap(target)
        return timeline(verb, target, fabric.change_watched(target, up=verb == "restore"))
    return timeline(verb, target, fabric.fail(target) if verb == "fail" else fabric.restore(target))


def _path(fabric: RunningFabric, order: Mapping[str, Any]) -> dict[str, Any]:
    found = fabric.path(order["src"], order["dst"])
    probe: list[list[Any]] = max(found["captured"], key=len, default=[])
    links = {interface: link.id for link in fabric.fabric.failure_targets() for interface in link_interfaces(link)}
    switches = list(dict.fromkeys(str(hop[0]).split("-")[0] for hop in found["rules"]))
    return {
        "declared": [f"{interface} {direction}" for interface, direction in found["declared"] or []],
        "rules": [f"{interface} {direction}" for interface, direction in found["rules"]],
        "probe": [f"{hop[0]} {hop[1]}" for hop in probe],
        "agree": found["agree"],
        "disagreement": found["disagreement"],
        "links": [links[hop[0]] for hop in found["rules"] if hop[1] == "out" and hop[0] in links],
        "relays": found["relays"],
        "arrived": found["arrived"],
        "sent": found["sent"],
        "entries": {switch: _entries(fabric, switch) for switch in switches},
    }


def _entries(fabric: RunningFabric, switch: str) -> list[str]:
    """The rules of a switch on the way that have carried packets."""
    if switch not in fabric.fabric.switch_by_id:
        return []
    flows = fabric.rules(switch)[switch]["flows"]
    return [flow for flow in flows if "n_packets=0," not in flow]


def _id(name: str, value: Any) -> str:
    if not isinstance(value, str) or not _ID.match(value):
        raise ActionError(f"'{name}' must be the id of a GPU, a switch or a link, such as d0r1 or d0r1-rail1")
    return value


def _on(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_NAME_LENGTH:
        raise ActionError(f"'{name}' must be the name of a fabric of the page")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ActionError(f"'{name}' must be true or false")
    return value


def _workload(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MOST_WORKLOAD_NAME:
        raise ActionError(f"'{name}' must be the name of a workload that is offered, such as first-light/all-reduce")
    return value


def _seed(name: str, value: Any) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_SEED):
        raise ActionError(f"'{name}' must be a whole number from 0 to {MOST_SEED}, or null for any")
    return value


def _number(least: float, most: float) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not good or not least <= value <= most:
            raise ActionError(f"'{name}' must be a number from {least:g} to {most:g}")
        return float(value)

    return check


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 100:
        raise ActionError(f"'{name}' must be a whole number from 1 to 100")
    return value


def _direction(name: str, value: Any) -> str:
    if value not in _DIRECTIONS:
        raise ActionError(f"'{name}' must be one of {', '.join(_DIRECTIONS)}")
    return str(value)


_NEEDED: dict[str, dict[str, Callable[[str, Any], Any]]] = {
    "fail": {"target": _id},
    "restore": {"target": _id},
    "degrade": {"target": _id, "rate_mbps": _number(0.001, 1e6)},
    "blackhole": {"target": _id, "direction": _direction},
    "flap": {"target": _id, "down_s": _number(0.05, 60), "up_s": _number(0.05, 60), "count": _count},
    "path": {"src": _id, "dst": _id},
    "mystery": {"seed": _seed},
    "solve": {"target": _id},
    "give-up": {},
    "start": {"workload": _workload},
    "stop": {},
}
