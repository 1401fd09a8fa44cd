"""Why a packet goes where it goes: each hop with the rule that decides there, and what is broken in its way."""

from __future__ import annotations

from dataclasses import dataclass

from controller.entries import (
    ETH_TYPE_IPV4,
    LEVEL_DEFAULT,
    LEVEL_DOMAIN,
    LEVEL_EXACT,
    LEVEL_HASHED,
    LEVEL_HASHED_ANY_SOURCE,
    LEVEL_OWN_GPU,
    LEVEL_RAIL,
    MARKED_DEFAULT,
    MARKED_OWN_GPU,
    PRIORITY_ARP,
    PRIORITY_CLOSED_PORT,
    PRIORITY_STAMP,
    PRIORITY_TABLE_MISS,
    Match,
    Rule,
)
from controller.repairs import rules_for
from controller.routing import Hop, Path, Routes
from topologies.model import HOST_PORT, NO_FAILURES, Fabric, Gpu, SwitchKind

_LEVELS = {
    LEVEL_OWN_GPU: "below this leaf",
    LEVEL_HASHED: "spread by hash",
    LEVEL_HASHED_ANY_SOURCE: "spread by hash, any source",
    LEVEL_EXACT: "one destination",
    LEVEL_DOMAIN: "one domain",
    LEVEL_RAIL: "one rail",
    LEVEL_DEFAULT: "everything else",
}
_SINGLE = {
    PRIORITY_STAMP: "stamps the version of the routes",
    PRIORITY_ARP: "answers ARP",
    PRIORITY_CLOSED_PORT: "closes the port of a dead link",
    PRIORITY_TABLE_MISS: "drops what no rule names",
}


def purpose(priority: int) -> str:
    """What rules of this priority are for; "unknown" for one that no rule of ours has."""
    if priority in _SINGLE:
        return _SINGLE[priority]
    if MARKED_DEFAULT <= priority <= MARKED_OWN_GPU:
        return "for packets turned back at a dead port"
    level = max((each for each in _LEVELS if each <= priority), default=None)
    if level is None or priority - level > 80:
        return "unknown"
    kind = "repair" if priority - level >= 10 else "healthy"
    return f"{kind}: {_LEVELS[level]}"


@dataclass(frozen=True)
class Reason:
    """One hop of a path: the rule that decides, and in words why the packet leaves by that link."""

    hop: Hop
    link_id: str
    rule: Rule
    text: str


@dataclass(frozen=True)
class Explanation:
    """A whole path. Without one, ``path`` is None and ``summary`` says what cuts the pair off."""

    path: Path | None
    reasons: tuple[Reason, ...]
    summary: str


def explain(routes: Routes, src: Gpu, dst: Gpu) -> Explanation:
    """Why packets from ``src`` to ``dst`` go as they do; raises RouteError if the two are the same."""
    path = routes.path(src, dst)
    if path is None:
        return Explanation(None, (), _why_cut_off(routes, src, dst))
    version = 1 if routes.links_down else 0
    tables = rules_for(routes, version)
    healthy = Routes(routes.fabric, NO_FAILURES, routes.policy)
    reasons = []
    for hop in path.hops:
        rule = _deciding(tables[hop.switch_id], hop, src, dst, version)
        link = routes.fabric.link_by_port[hop.switch_id, hop.out_port]
        reasons.append(Reason(hop, link.id, rule, _text(routes, healthy, hop, rule, src, dst)))
    return Explanation(path, tuple(reasons), _summary(routes, healthy, path))


def _deciding(rules: tuple[Rule, ...], hop: Hop, src: Gpu, dst: Gpu, version: int) -> Rule:
    """The rule that a packet of ``version`` meets, after it has been stamped where that is done."""

    def applies(match: Match) -> bool:
        return (
            match.eth_type in (None, ETH_TYPE_IPV4)
            and not match.marked
            and match.tcp_dst is None
            and match.in_port in (None, hop.in_port)
            and (match.version is None or match.version == version)
            and (match.src is None or match.src.matches(src))
            and (match.dst is None or match.dst.matches(dst))
        )

    candidates = [rule for rule in rules if rule.priority != PRIORITY_STAMP and applies(rule.match)]
    return max(candidates, key=lambda rule: rule.priority)


def _text(routes: Routes, healthy: Routes, hop: Hop, rule: Rule, src: Gpu, dst: Gpu) -> str:
    usual = healthy.next_port(hop.switch_id, src, dst)
    if usual == hop.out_port or usual is None:
        return rule.reason
    link = routes.fabric.link_by_port[hop.switch_id, usual]
    if link.id in routes.links_down:
        return f"{rule.reason}: {link.id} would be next, but is down"
    return f"{rule.reason}: the way by {link.id} is longer now, or leads nowhere"


def _summary(routes: Routes, healthy: Routes, path: Path) -> str:
    usual = healthy.path(path.src, path.dst)
    words = "the healthy path"
    if usual is not None and usual.hops != path.hops:
        dead = [link_id for link_id in usual.links if link_id in routes.links_down]
        words = f"a detour, because {', '.join(dead)} is down" if dead else "a detour"
    if path.relays:
        names = ", ".join(gpu.id for gpu in path.relays)
        words += f"; {names} {'relays' if len(path.relays) == 1 else 'relay'}"
    foreign = foreign_nvswitch(routes.fabric, path)
    if foreign is not None:
        words += f"; NVSwitch nv{foreign} of another domain is crossed, because the own one cannot be reached"
    return words


def foreign_nvswitch(fabric: Fabric, path: Path) -> int | None:
    """The domain of an NVSwitch on ``path`` that is neither the source's nor the destination's; None without one."""
    for hop in path.hops:
        switch = fabric.switch_by_id[hop.switch_id]
        if switch.kind is SwitchKind.NVSWITCH and switch.domain not in (path.src.domain, path.dst.domain):
            return switch.domain
    return None


def _why_cut_off(routes: Routes, src: Gpu, dst: Gpu) -> str:
    for gpu in (src, dst):
        if not routes.alive(gpu):
            return f"partitioned: {gpu.id} is down"
    for gpu in (src, dst):
        links = [link for link in routes.fabric.links_of(gpu.switch_id) if link.port(gpu.switch_id) != HOST_PORT]
        if all(link.id in routes.links_down for link in links):
            names = ", ".join(sorted((link.id for link in links), key=lambda name: "-nv" in name))
            return f"partitioned: all ways out of {gpu.id} are down ({names})"
    return f"partitioned: no live links join {src.id} and {dst.id} ({len(routes.links_down)} links are down)"
