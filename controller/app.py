"""The OpenFlow application: keeps every switch's table equal to the rules of the declared fabric.

It takes no packets and learns nothing: the fabric is declared, port states say what is broken, and the rules follow
from both. A change of rules goes to all switches at once, additions first; what is no longer wanted is deleted when
every switch has confirmed the additions with a barrier reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from controller import openflow
from controller.events import EventWriter, now_s
from controller.framework import CONFIG, DEAD, MAIN, OPENFLOW_1_3, App, end_process, handles, ofp_event
from controller.policy import RoutingPolicy
from controller.routing import Routes
from controller.rules import Match, Rule, rules_diff, rules_for
from topologies.model import Fabric, Failures, Link, LinkKind

_CHUNK_BYTES = 1 << 16


@dataclass
class _Session:
    """One connected switch. ``installed`` is None until its flows have been read."""

    switch_id: str
    datapath: Any
    flow_stats: list[Any] = field(default_factory=list)
    ports_seen: dict[int, bool] = field(default_factory=dict)
    foreign: list[Any] = field(default_factory=list)
    installed: dict[tuple[int, Match], Rule] | None = None
    in_step: bool = False


@dataclass
class _Change:
    """A change of rules on its way: first additions, then deletions, each confirmed by every switch in it."""

    sessions: list[_Session]
    done: Callable[[], None]
    deleting: bool = False
    waiting: dict[tuple[str, int], _Session] = field(default_factory=dict)
    rules_added: int = 0
    rules_deleted: int = 0


class ControllerApp(App):  # type: ignore[misc]
    """Installs and repairs the rules of one declared fabric."""

    OFP_VERSIONS = (OPENFLOW_1_3,)

    def __init__(self, fabric: Fabric, policy: RoutingPolicy, emit: EventWriter) -> None:
        """Work out the healthy rules, so that they are there when the first switch connects."""
        super().__init__()
        self._fabric = fabric
        self._policy = policy
        self._emit = emit
        self._started_s = now_s()
        self._sessions: dict[str, _Session] = {}
        self._port_up: dict[tuple[str, int], bool] = {}
        self._links_down: frozenset[str] = frozenset()
        self._generation = 1
        self._wanted = rules_for(Routes(fabric, policy=policy))
        self._changes: list[_Change] = []
        self._repair: _Change | None = None
        self._partitioned = 0
        self._ready = False

    def failed(self, message: str) -> None:
        """Report what is about to end the process."""
        self._emit("error", message=message)

    # Switches come and go

    @handles(ofp_event.EventOFPSwitchFeatures, CONFIG)
    def on_switch_features(self, event: Any) -> None:
        """A switch has connected."""
        switch = self._fabric.switch_by_dpid.get(event.msg.datapath_id)
        if switch is None:
            self._emit("unknown-switch", dpid=event.msg.datapath_id)
            return
        old = self._sessions.pop(switch.id, None)
        if old is not None:
            self._ready = False
            self._forget(old)
        self._sessions[switch.id] = _Session(switch.id, event.msg.datapath)
        self._emit("switch-connected", switch=switch.id)

    @handles(ofp_event.EventOFPPortDescStatsReply, CONFIG)
    def on_port_descriptions(self, event: Any) -> None:
        """A switch tells its ports: a link may have gone down before we came."""
        session = self._session_of(event.msg.datapath)
        if session is None:
            return
        session.ports_seen.update({port.port_no: _usable(port, event.msg) for port in event.msg.body})
        if event.msg.flags & event.msg.datapath.ofproto.OFPMPF_REPLY_MORE:
            return
        # A declared port that the switch doesn't have is as good as down until it is added.
        states = {
            link.port(session.switch_id): session.ports_seen.get(link.port(session.switch_id), False)
            for link in self._fabric.links_of(session.switch_id)
        }
        self._take_port_states(session, states)

    @handles(ofp_event.EventOFPStateChange, MAIN, DEAD)
    def on_state_change(self, event: Any) -> None:
        """A switch is ready for requests, or has gone."""
        session = self._session_of(event.datapath)
        if session is None:
            return
        if event.state == MAIN:
            self._send(session, [openflow.flow_stats_request(session.datapath)])
            return
        del self._sessions[session.switch_id]
        self._ready = False
        self._emit("switch-lost", switch=session.switch_id)
        self._forget(session)

    @handles(ofp_event.EventOFPFlowStatsReply, MAIN)
    def on_flow_stats(self, event: Any) -> None:
        """A switch tells its flows: keep what is right, add what is missing, then delete the rest."""
        session = self._session_of(event.msg.datapath)
        if session is None:
            return
        session.flow_stats.extend(event.msg.body)
        if event.msg.flags & event.msg.datapath.ofproto.OFPMPF_REPLY_MORE:
            return
        wanted = {openflow.rule_identity(rule): rule for rule in self._wanted[session.switch_id]}
        session.installed = {}
        for stats in session.flow_stats:
            rule = wanted.get(openflow.installed_identity(stats))
            if rule is None:
                session.foreign.append(stats)
            elif openflow.installed_steps(stats.instructions) == openflow.steps(rule.actions):
                session.installed[rule.identity] = rule
                self._generation = max(self._generation, stats.cookie)
        session.flow_stats = []
        self._start_change([session], lambda: self._in_step(session))

    def _in_step(self, session: _Session) -> None:
        session.in_step = True
        if self._ready or len(self._sessions) < len(self._fabric.switches):
            return
        if all(each.in_step for each in self._sessions.values()):
            self._ready = True
            self._emit(
                "ready",
                switches=len(self._sessions),
                rules=sum(len(rules) for rules in self._wanted.values()),
                elapsed_s=round(now_s() - self._started_s, 6),
            )

    @handles(ofp_event.EventOFPErrorMsg, CONFIG, MAIN)
    def on_error(self, event: Any) -> None:
        """A switch has refused a message: its table is not what we think, and nothing we say would be true."""
        session = self._session_of(event.msg.datapath)
        if session is not None:
            self.failed(f"switch {session.switch_id} refused a message: type {event.msg.type}, code {event.msg.code}")
            end_process(1)

    # Failures

    @handles(ofp_event.EventOFPPortStatus, CONFIG, MAIN)
    def on_port_status(self, event: Any) -> None:
        """A port has changed; one change of a link gives several of these messages at both of its ends."""
        message = event.msg
        session = self._session_of(message.datapath)
        if session is None:
            return
        gone = message.reason == message.datapath.ofproto.OFPPR_DELETE
        usable = not gone and _usable(message.desc, message)
        session.ports_seen[message.desc.port_no] = usable
        self._take_port_states(session, {message.desc.port_no: usable})

    def _take_port_states(self, session: _Session, states: dict[int, bool]) -> None:
        detected_s = now_s()
        links_down = set(self._links_down)
        for port, usable in states.items():
            where = (session.switch_id, port)
            link = self._fabric.link_by_port.get(where)
            if link is None or self._port_up.get(where, True) == usable:
                continue
            self._port_up[where] = usable
            self._emit("port-up" if usable else "port-down", switch=session.switch_id, port=port, link=link.id)
            if self._usable(link):
                links_down.discard(link.id)
            else:
                links_down.add(link.id)
        if links_down == self._links_down:
            return
        for link_id in sorted(links_down ^ self._links_down):
            self._emit("link-down" if link_id in links_down else "link-up", link=link_id)
        self._links_down = frozenset(links_down)
        self._start_repair(detected_s)

    def _usable(self, link: Link) -> bool:
        """Whether no end of the link is known to be down; the GPU's end of a host link is no switch port."""
        ends = [(link.b, link.b_port)]
        if link.kind is not LinkKind.HOST:
            ends.append((link.a, link.a_port))
        return all(self._port_up.get(end, True) for end in ends)

    def _start_repair(self, detected_s: float) -> None:
        """Replace the rules of every switch that the change of failures concerns; an unfinished repair is dropped."""
        begun_s = now_s()
        routes = Routes(self._fabric, Failures(links=self._links_down), self._policy)
        wanted = rules_for(routes)
        concerned = [switch_id for switch_id, rules in wanted.items() if rules is not self._wanted[switch_id]]
        self._wanted = wanted
        self._generation += 1
        if self._repair is not None:
            # Its additions were sent; its deletions are worked out anew against the rules wanted now.
            concerned += [session.switch_id for session in self._repair.sessions]
            if self._repair in self._changes:
                self._changes.remove(self._repair)
        sessions = [
            session
            for switch_id in dict.fromkeys(concerned)
            if (session := self._sessions.get(switch_id)) is not None and session.installed is not None
        ]
        computed_s = now_s() - begun_s
        names = sorted(self._links_down)

        def repaired() -> None:
            self._repair = None
            self._emit(
                "repaired",
                links_down=names,
                t_detected_s=round(detected_s, 6),
                elapsed_s=round(now_s() - detected_s, 6),
            )

        diffs = [rules_diff(each.installed.values(), wanted[each.switch_id]) for each in sessions if each.installed]
        self._emit(
            "repair",
            links_down=names,
            computed_s=round(computed_s, 6),
            rules_added=sum(len(adds) for adds, _ in diffs),
            rules_deleted=sum(len(deletes) for _, deletes in diffs),
            switches=len(sessions),
        )
        self._repair = _Change(sessions, repaired)
        self._send_additions(self._repair)
        self._report_partition(routes)

    def _report_partition(self, routes: Routes) -> None:
        pairs = routes.partitioned()
        if pairs or self._partitioned:
            self._emit("partitioned", count=len(pairs), pairs=[[src.id, dst.id] for src, dst in pairs])
        self._partitioned = len(pairs)

    # Changes of rules

    def _start_change(self, sessions: list[_Session], done: Callable[[], None]) -> None:
        self._send_additions(_Change(sessions, done))

    def _send_additions(self, change: _Change) -> None:
        self._changes.append(change)
        batches = []
        for session in change.sessions:
            assert session.installed is not None
            adds, _ = rules_diff(session.installed.values(), self._wanted[session.switch_id])
            session.installed.update({rule.identity: rule for rule in adds})
            batches.append((session, [openflow.flow_add(session.datapath, rule, self._generation) for rule in adds]))
        self._send_with_barriers(change, batches)

    def _send_deletions(self, change: _Change) -> None:
        change.deleting = True
        batches = []
        for session in change.sessions:
            assert session.installed is not None
            _, deletes = rules_diff(session.installed.values(), self._wanted[session.switch_id])
            messages = [openflow.flow_delete(session.datapath, rule.priority, rule.match) for rule in deletes]
            messages += [openflow.flow_delete_stats(session.datapath, stats) for stats in session.foreign]
            for rule in deletes:
                del session.installed[rule.identity]
            session.foreign = []
            if messages:
                batches.append((session, messages))
        self._send_with_barriers(change, batches)

    def _send_with_barriers(self, change: _Change, batches: list[tuple[_Session, list[Any]]]) -> None:
        """Send all messages first and the barriers after them, so that no switch waits for another's rules."""
        for session, messages in batches:
            self._send(session, messages)
        for session, _ in batches:
            barrier = session.datapath.ofproto_parser.OFPBarrierRequest(session.datapath)
            session.datapath.set_xid(barrier)
            change.waiting[session.switch_id, barrier.xid] = session
            self._send(session, [barrier])
        self._advance(change)

    @handles(ofp_event.EventOFPBarrierReply, MAIN)
    def on_barrier_reply(self, event: Any) -> None:
        """A switch has done all that was sent before the barrier."""
        session = self._session_of(event.msg.datapath)
        if session is None:
            return
        for change in list(self._changes):
            if change.waiting.pop((session.switch_id, event.msg.xid), None) is not None:
                self._advance(change)

    def _advance(self, change: _Change) -> None:
        if change.waiting or change not in self._changes:
            return
        if not change.deleting:
            self._send_deletions(change)
            return
        self._changes.remove(change)
        change.done()

    def _forget(self, lost: _Session) -> None:
        """Wait no longer for a switch that has gone."""
        for change in list(self._changes):
            change.sessions = [session for session in change.sessions if session is not lost]
            change.waiting = {key: session for key, session in change.waiting.items() if session is not lost}
            if change.sessions or change is self._repair:
                self._advance(change)
            else:
                self._changes.remove(change)

    def _session_of(self, datapath: Any) -> _Session | None:
        """The session of a connection; None if its switch is undeclared or has connected anew since."""
        return next((session for session in self._sessions.values() if session.datapath is datapath), None)

    @staticmethod
    def _send(session: _Session, messages: Iterable[Any]) -> None:
        """Send messages in few writes: the framework queues 16 writes per switch, and then blocks."""
        pending = bytearray()
        for message in messages:
            if message.xid is None:
                session.datapath.set_xid(message)
            message.serialize()
            pending += message.buf
            if len(pending) >= _CHUNK_BYTES:
                session.datapath.send(bytes(pending))
                pending.clear()
        if pending:
            session.datapath.send(bytes(pending))


def _usable(port: Any, message: Any) -> bool:
    ofproto = message.datapath.ofproto
    return not port.config & ofproto.OFPPC_PORT_DOWN and not port.state & ofproto.OFPPS_LINK_DOWN
