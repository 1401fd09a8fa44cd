"""Keeps every switch equal to the rules of the fabric, whatever fails: decides what to send when, and sends nothing.

It is told what happens (a switch connects and tells its flows, a port changes, a switch confirms, time passes) and
returns orders. So the same code runs against live switches and, in tests, against switches in memory.

A change of routes is one *version* and goes through four stages, each begun when all switches have confirmed the one
before:

1. adding: the rules of the new version, everywhere; no packet obeys them yet.
2. stamping: the GPU switches turn over, in any order, to stamping the new version. Traffic is back when all have.
3. draining: packets of the old version leave the fabric.
4. deleting: what nobody obeys any more is taken away.

A packet obeys one version from end to end, so no mixture of stages can lose or loop it. A failure in the middle of a
change starts a new version from stage 1. When nothing is broken the version is 0: healthy rules only, no stamps.

A placement that is given while the fabric runs (:meth:`Keeper.place`) is a change of routes like any other; as long as
it is in force there is a version other than 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from controller.entries import MAX_VERSION, PRIORITY_STAMP, Group, Rule
from controller.errors import PlacementError
from controller.openflow import BucketSteps, Step, group_steps, rule_identity, steps, version_of
from controller.placement import Placement
from controller.policy import RoutingPolicy
from controller.repairs import Repairs
from controller.routing import Routes
from controller.rules import groups_for, healthy_rules, stamp_rule
from topologies.model import Fabric, Failures, Link, LinkKind, SwitchKind

DRAIN_S = 1.0
"""How long packets of an old version may still be under way: more than any path's queues hold."""

START_S = 3.0
"""How long a controller that has just started waits for all switches before it acts on what it knows."""

CALM_S = 0.03
"""With local repair, how long a change of links waits for more of the same failure before new routes are made: a dead
switch is told as many dead links, and meanwhile nothing is lost."""

ASK_AGAIN_S = 0.5
"""After a port has changed its switch is asked once more, in case a message was lost or overtaken."""

ASK_ALL_S = 5.0
"""How often every switch is asked for its ports without a reason."""

FLAP_WINDOW_S = 10.0
FREE_FLAPS = 2
HOLD_FIRST_S = 0.5
HOLD_MAX_S = 4.0
"""A link that goes down more than FREE_FLAPS times in the window is used again only after it has stayed up for
HOLD_FIRST_S, doubled with every further time up to HOLD_MAX_S."""

Identity = tuple[int, int, frozenset[tuple[str, Any]]]
Emit = Callable[..., None]


@dataclass(frozen=True)
class Held:
    """A flow that a switch holds: what it does, and what is needed to delete it (a rule, or the flow as read)."""

    steps: tuple[Step, ...] | None
    origin: Any


@dataclass(frozen=True)
class Orders:
    """What to send to one switch, in this order, with a barrier at the end that is confirmed by ``token``."""

    switch_id: str
    token: int
    groups_added: tuple[Group, ...] = ()
    groups_modified: tuple[Group, ...] = ()
    rules_added: tuple[Rule, ...] = ()
    deleted: tuple[Any, ...] = ()
    groups_deleted: tuple[int, ...] = ()


@dataclass(frozen=True)
class AskPorts:
    """Ask one switch for the state of its ports."""

    switch_id: str


@dataclass
class _Session:
    """One connected switch, and what it will hold once it has obeyed all orders sent so far.

    ``lacking`` are healthy rules that it has not been sent yet; ``others`` all its flows that are no healthy rules.
    """

    switch_id: str
    lacking: tuple[Rule, ...] = ()
    others: dict[Identity, Held] = field(default_factory=dict)
    groups: dict[int, tuple[BucketSteps, ...] | None] = field(default_factory=dict)
    lacking_groups: bool = True
    read: bool = False
    unconfirmed: set[int] = field(default_factory=set)


class Stage(str, Enum):
    """How far a change of routes is."""

    ADDING = "adding"
    STAMPING = "stamping"
    DRAINING = "draining"
    DELETING = "deleting"
    SETTLED = "settled"


@dataclass
class _Change:
    """The routes that are wanted now, and how far they are in force."""

    version: int
    routes: Routes
    wanted: dict[str, dict[Identity, Rule]]
    """By switch, what it is to hold beside its healthy rules, stamps left out."""
    detected_s: float
    stage: Stage = Stage.ADDING
    drained_s: float = 0.0
    announced: bool = False


def _does(held: Held | None, rule: Rule) -> bool:
    """Whether a switch has a flow that does what ``rule`` says."""
    return held is not None and held.steps == steps(rule.actions)


def _by_identity(routes: Routes, version: int, base: RoutingPolicy) -> dict[str, dict[Identity, Rule]]:
    if not version:
        return {}
    return {
        switch_id: {rule_identity(rule): rule for rule in rules}
        for switch_id, rules in Repairs(routes, version, base).items()
    }


class Keeper:
    """The controller's decisions for one fabric. ``now_s`` is the clock, ``emit`` takes events."""

    def __init__(self, fabric: Fabric, policy: RoutingPolicy, emit: Emit, now_s: Callable[[], float]) -> None:
        """Work out the healthy rules, so that they are there when the first switch connects."""
        self.fabric = fabric
        self.policy = policy
        self._policy_now = policy
        self._announced: frozenset[str] = frozenset()
        self._placing = False
        self._emit = emit
        self._now_s = now_s
        self._began_s = now_s()
        self._healthy = {
            switch_id: {rule_identity(rule): rule for rule in rules}
            for switch_id, rules in healthy_rules(fabric, policy).items()
        }
        self._groups = {
            switch_id: {group.group_id: group for group in groups}
            for switch_id, groups in groups_for(fabric, policy).items()
        }
        self._sessions: dict[str, _Session] = {}
        self._port_up: dict[tuple[str, int], bool] = {}
        self._broken: set[str] = set()
        self._drained: frozenset[str] = frozenset()
        self._held_until_s: dict[str, float] = {}
        self._downs_s: dict[str, deque[float]] = {}
        self._ask_s: dict[str, float] = {}
        self._ask_all_s = self._began_s + ASK_ALL_S
        self._tokens = 0
        self._change = _Change(0, Routes(fabric, policy=policy), {}, self._began_s, announced=True)
        self._versions = {0}
        self._starting = True
        self._ready = False
        self._detected_s: float | None = None
        self._partitioned = 0
        self._outbox: list[Orders | AskPorts] = []

    # What is known

    @property
    def routes(self) -> Routes:
        """The routes that are in force, or on their way to be."""
        return self._change.routes

    @property
    def version(self) -> int:
        """The version of :attr:`routes`."""
        return self._change.version

    @property
    def stage(self) -> Stage:
        """How far they are."""
        return self._change.stage

    @property
    def calming(self) -> bool:
        """Whether a change of links is known and waits for more of the same failure; time will act on it."""
        return self._detected_s is not None

    @property
    def hurried(self) -> bool:
        """Whether traffic waits for the orders: at the start, and where switches do not repair by themselves."""
        return not self._ready or not self.policy.local_repair

    @property
    def connected(self) -> list[str]:
        """Ids of the switches that are connected, sorted."""
        return sorted(self._sessions)

    def links_down(self) -> frozenset[str]:
        """Links that are not to be used: broken, drained, and those that must prove themselves after flapping."""
        return self._drained.union(self._broken, self._held_until_s)

    def counted_drops(self, switch_id: str, packets: Mapping[int, Sequence[int]]) -> int:
        """Of a switch's group counters (packets by bucket), those that were dropped at a second dead port."""
        groups = self._groups[switch_id]
        return sum(
            count
            for group_id, counts in packets.items()
            if group_id in groups
            for count, bucket in zip(counts, groups[group_id].buckets, strict=False)
            if not bucket.actions
        )

    @property
    def ready(self) -> bool:
        """Whether every declared switch is connected and has its rules."""
        return self._ready

    @property
    def drained(self) -> frozenset[str]:
        """Links that are out of service, whether they are up or not."""
        return self._drained

    @property
    def broken(self) -> frozenset[str]:
        """Links that are down."""
        return frozenset(self._broken)

    def held_down_s(self) -> dict[str, float]:
        """Links that are up but must prove themselves, with the seconds that they still have to."""
        now_s = self._now_s()
        return {link_id: max(0.0, until_s - now_s) for link_id, until_s in self._held_until_s.items()}

    def take(self) -> list[Orders | AskPorts]:
        """What is to be sent now; each is returned once."""
        orders, self._outbox = self._outbox, []
        return orders

    # What happens

    def connect(self, switch_id: str) -> None:
        """A switch has connected; it is used once it has told its ports, groups and flows."""
        self._sessions[switch_id] = _Session(switch_id)
        self._ready = False

    def lose(self, switch_id: str) -> None:
        """A switch has lost its connection. It goes on forwarding by what it holds."""
        if self._sessions.pop(switch_id, None) is not None:
            self._ready = False
            self._advance()

    def read(
        self,
        switch_id: str,
        flows: Mapping[Identity, Held],
        groups: Mapping[int, tuple[BucketSteps, ...] | None],
    ) -> None:
        """A switch has told what it holds: keep what is right, add what is missing; the rest goes last."""
        session = self._sessions[switch_id]
        healthy = self._healthy[switch_id]
        session.lacking = tuple(rule for identity, rule in healthy.items() if not _does(flows.get(identity), rule))
        session.others = {identity: held for identity, held in flows.items() if identity not in healthy}
        session.groups, session.read = dict(groups), True
        if self._starting:
            self._complete(session, {})
            self._start_if_all_are_there()
            return
        self._versions.update(version for each in flows if (version := version_of(each)) is not None)
        own = self._change.wanted.get(switch_id, {})
        if any(version_of(each) == self.version and each not in own for each in flows):
            # Left over from an earlier use of the same number: these rules must not mix with the present ones.
            self._retarget(self._now_s(), always=True)
        else:
            self._begin(self._change)

    def set_ports(self, switch_id: str, usable: Mapping[int, bool], every: bool = False) -> None:
        """Port states of a switch, by number; with ``every`` these are all ports that it has."""
        detected_s = self._now_s()
        if every:
            # A declared port that the switch does not have is as good as down until it is added.
            ports = [link.port(switch_id) for link in self.fabric.links_of(switch_id)]
            usable = {port: usable.get(port, False) for port in ports}
        concerned = []
        for port, up in usable.items():
            link = self.fabric.link_by_port.get((switch_id, port))
            if link is None or self._port_up.get((switch_id, port), True) == up:
                continue
            self._port_up[switch_id, port] = up
            self._emit("port-up" if up else "port-down", switch=switch_id, port=port, link=link.id)
            concerned.append(link)
            for end in (link.a, link.b):
                if end in self._sessions:
                    self._ask_s[end] = detected_s + ASK_AGAIN_S
        for link in concerned:
            self._judge(link, detected_s)
        if self._starting or self.links_down() == self._change.routes.failures.links:
            return
        if self.policy.local_repair:
            self._detected_s = detected_s if self._detected_s is None else self._detected_s
        else:
            self._retarget(detected_s)

    def place(self, placement: Placement | None) -> None:
        """From now on single connections take the links of ``placement``; None: of the one that the policy has.

        Raises PlacementError for one that does not fit the fabric, or whose channels have other TCP ports.
        """
        wanted = self.policy.placement if placement is None else placement
        if wanted is not None:
            wanted.check(self.fabric)
            own = self.policy.placement
            if own is not None and wanted.base_port != own.base_port:
                raise PlacementError(
                    f"the placement's base port is {wanted.base_port}, but the fabric was started with one whose base "
                    f"port is {own.base_port}: use that"
                )
        self._policy_now, self._placing = replace(self.policy, placement=wanted), True
        self._retarget(self._now_s(), always=True)

    def drain(self, link_ids: frozenset[str]) -> bool:
        """Take these links, and no others, out of service: no path uses them though they are up.

        Whether other routes follow from it. Raises UnknownElementError for a link that there is not.
        """
        for link_id in link_ids:
            self.fabric.link(link_id)
        before = self.links_down()
        if link_ids != self._drained:
            self._drained = link_ids
            self._emit("drained", links=sorted(link_ids))
            self._retarget(self._now_s())
        return self.links_down() != before

    def confirm(self, switch_id: str, token: int) -> None:
        """A switch has obeyed the orders of that token."""
        session = self._sessions.get(switch_id)
        if session is not None and token in session.unconfirmed:
            session.unconfirmed.discard(token)
            if self._starting:
                self._start_if_all_are_there()
            self._advance()

    def tick(self) -> None:
        """Time has passed."""
        now_s = self._now_s()
        for switch_id, due_s in list(self._ask_s.items()):
            if due_s <= now_s:
                del self._ask_s[switch_id]
                if switch_id in self._sessions:
                    self._outbox.append(AskPorts(switch_id))
        if self._ask_all_s <= now_s:
            self._ask_all_s = now_s + ASK_ALL_S
            self._outbox += [AskPorts(switch_id) for switch_id in self.connected]
        if self._starting and self._sessions and now_s - self._began_s >= START_S:
            self._start()
        freed = [link_id for link_id, until_s in self._held_until_s.items() if until_s <= now_s]
        for link_id in freed:
            del self._held_until_s[link_id]
        if freed and not self._starting:
            self._retarget(now_s)
        if self._detected_s is not None and now_s - self._detected_s >= CALM_S:
            self._retarget(self._detected_s)
        self._advance()

    # Failures

    def _judge(self, link: Link, now_s: float) -> None:
        """Take note of a link that has gone or come back."""
        usable = self._usable(link)
        if usable == (link.id not in self._broken):
            return
        if not usable:
            self._broken.add(link.id)
            self._held_until_s.pop(link.id, None)
            self._downs_s.setdefault(link.id, deque()).append(now_s)
            self._emit("link-down", link=link.id)
            return
        self._broken.discard(link.id)
        self._emit("link-up", link=link.id)
        downs_s = self._downs_s[link.id]
        while downs_s and downs_s[0] < now_s - FLAP_WINDOW_S:
            downs_s.popleft()
        beyond = len(downs_s) - FREE_FLAPS
        if beyond > 0:
            hold_s = min(HOLD_FIRST_S * 2 ** (beyond - 1), HOLD_MAX_S)
            self._held_until_s[link.id] = now_s + hold_s
            self._emit("hold-down", link=link.id, hold_s=hold_s, downs=len(downs_s))

    def _usable(self, link: Link) -> bool:
        """Whether no end of the link is known to be down; the GPU's end of a host link is no switch port."""
        ends = [(link.b, link.b_port)]
        if link.kind is not LinkKind.HOST:
            ends.append((link.a, link.a_port))
        return all(self._port_up.get(end, True) for end in ends)

    def _retarget(self, detected_s: float, always: bool = False) -> None:
        """Want the routes for what is broken now."""
        links_down = self.links_down()
        self._detected_s = None
        if self._starting or (links_down == self._change.routes.failures.links and not always):
            return
        begun_s = self._now_s()
        routes = Routes(self.fabric, Failures(links=links_down), self._policy_now)
        version = self._free_version() if self._differs(links_down) else 0
        change = _Change(version, routes, _by_identity(routes, version, self.policy), detected_s)
        missing = self._missing(change)
        self._emit(
            "repair",
            links_down=sorted(links_down),
            computed_s=round(self._now_s() - begun_s, 6),
            rules_added=missing[0],
            rules_deleted=missing[1],
            switches=missing[2],
            version=version,
        )
        self._begin(change)
        self._report_partition()

    def _differs(self, links_down: frozenset[str]) -> bool:
        """Whether the healthy rules alone would not do."""
        return bool(links_down) or self._policy_now.placement != self.policy.placement

    def _missing(self, change: _Change) -> tuple[int, int, int]:
        """(rules to add, rules to delete, switches concerned) for a change, stamps included."""
        added = deleted = concerned = 0
        for session in self._sessions.values():
            wanted = self._wanted(change, session.switch_id)
            adds = sum(1 for identity, rule in wanted.items() if not _does(session.others.get(identity), rule))
            adds += len(session.lacking)
            deletes = sum(1 for identity in session.others if identity not in wanted)
            added, deleted = added + adds, deleted + deletes
            concerned += bool(adds or deletes)
        return added, deleted, concerned

    def _free_version(self) -> int:
        """A version that no packet and no rule can still have."""
        version = max(self.version, *self._versions)
        for _ in range(MAX_VERSION):
            version = version % MAX_VERSION + 1
            if version not in self._versions:
                break
        self._versions.add(version)
        return version

    def _report_partition(self) -> None:
        pairs = self.routes.partitioned()
        if pairs or self._partitioned:
            self._emit("partitioned", count=len(pairs), pairs=[[src.id, dst.id] for src, dst in pairs])
        self._partitioned = len(pairs)

    # Start

    def _start_if_all_are_there(self) -> None:
        sessions = self._sessions.values()
        there = len(self._sessions) == len(self.fabric.switches)
        if there and all(session.read and not session.unconfirmed for session in sessions):
            self._start()

    def _start(self) -> None:
        """Act for the first time: keep the version that the switches hold, if its rules are the ones wanted now."""
        self._starting = False
        stamps = set()
        for session in self._sessions.values():
            self._versions.update(version for each in session.others if (version := version_of(each)) is not None)
            if self.fabric.switch_by_id[session.switch_id].kind is SwitchKind.GPU:
                stamps.add(self._stamped(session))
        links_down = self.links_down()
        version = stamps.pop() if len(stamps) == 1 else -1
        if version >= 0 and bool(version) == self._differs(links_down):
            routes = Routes(self.fabric, Failures(links=links_down), self._policy_now)
            adopted = _Change(version, routes, _by_identity(routes, version, self.policy), 0.0, announced=True)
            if self._missing(adopted)[0] == 0 and not self._has_strangers(adopted):
                self._begin(adopted)
                self._report_partition()
                return
        self._retarget(self._now_s(), always=True)

    def _stamped(self, session: _Session) -> int:
        """The version that a GPU switch stamps; 0 for none."""
        for identity, held in session.others.items():
            if identity[1] == PRIORITY_STAMP and held.steps:
                return int(held.steps[0][-1])
        return 0

    def _has_strangers(self, change: _Change) -> bool:
        """Whether a switch holds rules of the change's version that do not belong to it."""
        return any(
            version_of(identity) == change.version and identity not in self._wanted(change, session.switch_id)
            for session in self._sessions.values()
            for identity in session.others
        )

    # Changes of rules

    def _wanted(self, change: _Change, switch_id: str) -> dict[Identity, Rule]:
        """What a switch holds beside its healthy rules when ``change`` is settled."""
        wanted = change.wanted.get(switch_id, {})
        switch = self.fabric.switch_by_id[switch_id]
        if not change.version or switch.kind is not SwitchKind.GPU:
            return wanted
        stamp = stamp_rule(change.version)
        return {**wanted, rule_identity(stamp): stamp}

    def _begin(self, change: _Change) -> None:
        """Stage 1; also for a change that is under way already, when a switch has come back."""
        self._change = change
        change.stage = Stage.ADDING
        for session in self._sessions.values():
            if session.read:
                self._complete(session, change.wanted.get(session.switch_id, {}))
        self._advance()

    def _complete(self, session: _Session, wanted: Mapping[Identity, Rule]) -> None:
        """Order what a switch lacks of its groups, its healthy rules and ``wanted``."""
        groups = self._groups[session.switch_id]
        new: tuple[Group, ...] = ()
        other: tuple[Group, ...] = ()
        if session.lacking_groups:
            new = tuple(group for group_id, group in groups.items() if group_id not in session.groups)
            other = tuple(
                group
                for group_id, group in groups.items()
                if group_id in session.groups and session.groups[group_id] != group_steps(group)
            )
            session.groups.update({group.group_id: group_steps(group) for group in (*new, *other)})
            session.lacking_groups = False
        adds = tuple(rule for identity, rule in wanted.items() if not _does(session.others.get(identity), rule))
        lacking, session.lacking = session.lacking, ()
        session.others.update({identity: Held(steps(rule.actions), rule) for identity, rule in wanted.items()})
        self._order(session, groups_added=new, groups_modified=other, rules_added=(*lacking, *adds))

    def _order(self, session: _Session, **what: tuple[Any, ...]) -> None:
        if not any(what.values()):
            return
        self._tokens += 1
        session.unconfirmed.add(self._tokens)
        self._outbox.append(Orders(session.switch_id, self._tokens, **what))

    def _advance(self) -> None:
        """Go to the next stage if all switches have confirmed the present one."""
        change = self._change
        while not self._starting and change.stage is not Stage.SETTLED:
            if any(session.unconfirmed for session in self._sessions.values()):
                return
            if change.stage is Stage.ADDING:
                change.stage = Stage.STAMPING
                self._stamp(change)
            elif change.stage is Stage.STAMPING:
                change.stage = Stage.DRAINING
                change.drained_s = self._now_s() + DRAIN_S
                self._in_force(change)
            elif change.stage is Stage.DRAINING:
                if self._now_s() < change.drained_s and self._leftovers(change):
                    return
                change.stage = Stage.DELETING
                self._delete(change)
            else:
                change.stage = Stage.SETTLED
                self._versions = {0, change.version}
                self._emit("settled", links_down=sorted(change.routes.failures.links), version=change.version)

    def _stamp(self, change: _Change) -> None:
        for session in self._sessions.values():
            switch = self.fabric.switch_by_id[session.switch_id]
            if switch.kind is not SwitchKind.GPU or not session.read:
                continue
            stamp = stamp_rule(change.version)
            identity = rule_identity(stamp)
            if change.version and not _does(session.others.get(identity), stamp):
                session.others[identity] = Held(steps(stamp.actions), stamp)
                self._order(session, rules_added=(stamp,))
            elif not change.version and identity in session.others:
                self._order(session, deleted=(session.others.pop(identity).origin,))

    def _in_force(self, change: _Change) -> None:
        now_s = self._now_s()
        if not change.announced:
            change.announced = True
            self._announce(change, now_s)
        everybody = len(self._sessions) == len(self.fabric.switches)
        if not self._ready and everybody and all(session.read for session in self._sessions.values()):
            self._ready = True
            rules = sum(
                len(self._healthy[switch_id]) + len(self._wanted(change, switch_id)) for switch_id in self._sessions
            )
            self._emit("ready", switches=len(self._sessions), rules=rules, elapsed_s=round(now_s - self._began_s, 6))

    def _announce(self, change: _Change, now_s: float) -> None:
        """Say what has come into force: connections placed anew, other links in use, or both."""
        links_down, placement = change.routes.failures.links, change.routes.policy.placement
        placed, moved = self._placing, links_down != self._announced
        self._placing, self._announced = False, links_down
        times = {
            "t_detected_s": round(change.detected_s, 6),
            "elapsed_s": round(now_s - change.detected_s, 6),
            "version": change.version,
        }
        if placed:
            self._emit("placed", connections=len(placement.ways) if placement is not None else 0, **times)
        if moved or not placed:
            self._emit("repaired", links_down=sorted(links_down), **times)

    def _leftovers(self, change: _Change) -> bool:
        return any(
            not session.others.keys() <= self._wanted(change, session.switch_id).keys()
            for session in self._sessions.values()
        )

    def _delete(self, change: _Change) -> None:
        for session in self._sessions.values():
            if not session.read:
                continue
            wanted = self._wanted(change, session.switch_id)
            gone = [identity for identity in session.others if identity not in wanted]
            strange = tuple(group_id for group_id in session.groups if group_id not in self._groups[session.switch_id])
            self._order(
                session, deleted=tuple(session.others.pop(identity).origin for identity in gone), groups_deleted=strange
            )
            for group_id in strange:
                del session.groups[group_id]
