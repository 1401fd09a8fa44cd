"""The OpenFlow application: a thin adapter between the switches and :class:`controller.keeper.Keeper`.

It takes no packets and learns nothing: the fabric is declared, port states say what is broken, and the rules follow
from both. Here messages become facts for the keeper, and its orders become messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from controller import openflow
from controller.entries import Rule
from controller.events import EventWriter, now_s
from controller.framework import (
    CONFIG,
    DEAD,
    MAIN,
    OPENFLOW_1_3,
    App,
    EventBase,
    end_process,
    handles,
    hub,
    ofp_event,
)
from controller.keeper import AskPorts, Held, Identity, Keeper, Orders
from controller.placement import Placement
from controller.policy import RoutingPolicy
from topologies.errors import RailbedError
from topologies.model import Fabric

TICK_S = 0.01
CALM_WINDOW = 16
"""Orders under way at a time while traffic flows by local repair: one process forwards for all switches of an emulated
fabric, and it forwards nothing while it works through a flood of rules."""

_CHUNK_BYTES = 1 << 16


class TimePassed(EventBase):  # type: ignore[misc]
    """Tells the application's own thread that time has passed."""


class Asked(EventBase):  # type: ignore[misc]
    """Asks the application's own thread to call something, so that nobody else touches the keeper."""

    def __init__(self, call: Callable[[], None]) -> None:
        """``call`` takes no arguments; its result is its own business."""
        super().__init__()
        self.call = call


@dataclass
class _Connection:
    """One connected switch, and what it has told so far in answers of several parts."""

    switch_id: str
    datapath: Any
    ports: dict[int, bool] = field(default_factory=dict)
    flows: dict[Identity, Held] = field(default_factory=dict)
    groups: dict[int, tuple[openflow.BucketSteps, ...] | None] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    port_counters: list[Any] = field(default_factory=list)
    group_counters: list[Any] = field(default_factory=list)
    askers: list[Callable[[dict[str, Any] | None], None]] = field(default_factory=list)


class ControllerApp(App):  # type: ignore[misc]
    """Installs and repairs the rules of one declared fabric."""

    OFP_VERSIONS = (OPENFLOW_1_3,)

    def __init__(self, fabric: Fabric, policy: RoutingPolicy, emit: EventWriter) -> None:
        """Nothing is sent before a switch has connected."""
        super().__init__()
        self._fabric = fabric
        self._emit = emit
        self._connections: dict[str, _Connection] = {}
        self._waiting: deque[Orders | AskPorts] = deque()
        self.keeper = Keeper(fabric, policy, emit, now_s)

    def start(self) -> Any:
        """Start handling events, with a clock that ticks."""
        thread = super().start()
        hub.spawn(self._clock)
        return thread

    def _clock(self) -> None:
        while True:
            hub.sleep(TICK_S)
            self.send_event(self.name, TimePassed())

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
        self._connections[switch.id] = _Connection(switch.id, event.msg.datapath)
        self._emit("switch-connected", switch=switch.id)
        self.keeper.connect(switch.id)

    @handles(ofp_event.EventOFPPortDescStatsReply, CONFIG, MAIN)
    def on_port_descriptions(self, event: Any) -> None:
        """A switch tells its ports, on connecting or because it was asked."""
        connection = self._connection_of(event.msg.datapath)
        if connection is None:
            return
        connection.ports.update({port.port_no: _usable(port, event.msg) for port in event.msg.body})
        if event.msg.flags & event.msg.datapath.ofproto.OFPMPF_REPLY_MORE:
            return
        ports, connection.ports = connection.ports, {}
        self.keeper.set_ports(connection.switch_id, ports, every=True)
        self._send_orders()

    @handles(ofp_event.EventOFPStateChange, MAIN, DEAD)
    def on_state_change(self, event: Any) -> None:
        """A switch is ready for requests, or has gone."""
        connection = self._connection_of(event.datapath)
        if connection is None:
            return
        if event.state == MAIN:
            datapath = connection.datapath
            _send(connection, [openflow.group_desc_request(datapath), openflow.flow_stats_request(datapath)])
            return
        del self._connections[connection.switch_id]
        for asker in connection.askers:
            asker(None)
        self._emit("switch-lost", switch=connection.switch_id)
        self.keeper.lose(connection.switch_id)
        self._send_orders()

    @handles(ofp_event.EventOFPGroupDescStatsReply, MAIN)
    def on_group_descriptions(self, event: Any) -> None:
        """A switch tells its groups."""
        connection = self._connection_of(event.msg.datapath)
        if connection is not None:
            connection.groups.update(openflow.installed_group(group) for group in event.msg.body)

    @handles(ofp_event.EventOFPFlowStatsReply, MAIN)
    def on_flow_stats(self, event: Any) -> None:
        """A switch tells its flows; the last part of this answer comes after all of its groups."""
        connection = self._connection_of(event.msg.datapath)
        if connection is None:
            return
        for stats in event.msg.body:
            done = openflow.installed_steps(stats.instructions)
            connection.flows[openflow.installed_identity(stats)] = Held(done, stats)
        if event.msg.flags & event.msg.datapath.ofproto.OFPMPF_REPLY_MORE:
            return
        self.keeper.read(connection.switch_id, connection.flows, connection.groups)
        connection.flows, connection.groups = {}, {}
        self._send_orders()

    @handles(ofp_event.EventOFPErrorMsg, CONFIG, MAIN)
    def on_error(self, event: Any) -> None:
        """A switch has refused a message: its table is not what we think, and nothing we say would be true."""
        connection = self._connection_of(event.msg.datapath)
        if connection is not None:
            refused = f"type {event.msg.type}, code {event.msg.code}"
            self.failed(f"switch {connection.switch_id} refused a message: {refused}")
            end_process(1)

    # What happens while they are connected

    @handles(ofp_event.EventOFPPortStatus, CONFIG, MAIN)
    def on_port_status(self, event: Any) -> None:
        """A port has changed; one change of a link gives several of these messages at both of its ends."""
        message = event.msg
        connection = self._connection_of(message.datapath)
        if connection is None:
            return
        gone = message.reason == message.datapath.ofproto.OFPPR_DELETE
        usable = not gone and _usable(message.desc, message)
        self.keeper.set_ports(connection.switch_id, {message.desc.port_no: usable})
        self._send_orders()

    @handles(ofp_event.EventOFPBarrierReply, MAIN)
    def on_barrier_reply(self, event: Any) -> None:
        """A switch has done all that was sent before the barrier."""
        connection = self._connection_of(event.msg.datapath)
        token = connection.tokens.pop(event.msg.xid, None) if connection is not None else None
        if connection is not None and token is not None:
            self.keeper.confirm(connection.switch_id, token)
            self._send_orders()

    @handles(TimePassed)
    def on_time_passed(self, _event: Any) -> None:
        """Let the keeper do what is due."""
        self.keeper.tick()
        self._send_orders()

    @handles(Asked)
    def on_asked(self, event: Any) -> None:
        """Call what another thread wants called here."""
        event.call()

    # Questions from outside

    @handles(ofp_event.EventOFPPortStatsReply, MAIN)
    def on_port_stats(self, event: Any) -> None:
        """A switch tells its port counters, because somebody has asked."""
        connection = self._connection_of(event.msg.datapath)
        if connection is not None:
            connection.port_counters += event.msg.body

    @handles(ofp_event.EventOFPGroupStatsReply, MAIN)
    def on_group_stats(self, event: Any) -> None:
        """A switch tells its group counters; their last part comes after all port counters."""
        connection = self._connection_of(event.msg.datapath)
        if connection is None:
            return
        connection.group_counters += event.msg.body
        if event.msg.flags & event.msg.datapath.ofproto.OFPMPF_REPLY_MORE:
            return
        found = self._counters_of(connection)
        connection.port_counters, connection.group_counters = [], []
        askers, connection.askers = connection.askers, []
        for asker in askers:
            asker(found)

    def ask_counters(self, switch_id: str, asker: Callable[[dict[str, Any] | None], None]) -> None:
        """Have ``asker`` called with a switch's counters; with None at once if it is not connected."""
        connection = self._connections.get(switch_id)
        if connection is None:
            asker(None)
            return
        connection.askers.append(asker)
        if len(connection.askers) == 1:
            _send(connection, openflow.counter_requests(connection.datapath))

    def _counters_of(self, connection: _Connection) -> dict[str, Any]:
        links = {port: link.id for (switch_id, port), link in self._fabric.link_by_port.items()
                 if switch_id == connection.switch_id}  # fmt: skip
        drops = self.keeper.counted_drops(
            connection.switch_id,
            {
                each.group_id: [bucket.packet_count for bucket in each.bucket_stats]
                for each in connection.group_counters
            },
        )
        return {
            "switch": connection.switch_id,
            "ports": [
                {
                    "port": each.port_no, "link": links[each.port_no], "rx_packets": each.rx_packets,
                    "tx_packets": each.tx_packets, "rx_bytes": each.rx_bytes, "tx_bytes": each.tx_bytes,
                    "tx_dropped_packets": each.tx_dropped,
                }
                for each in sorted(connection.port_counters, key=lambda counted: int(counted.port_no))
                if each.port_no in links
            ],
            "dropped_at_second_dead_port_packets": drops,
        }  # fmt: skip

    def place(self, placement: Placement | None) -> None:
        """Place connections anew; for the application's own thread. Raises PlacementError."""
        self.keeper.place(placement)
        self._send_orders()

    def drain(self, link_ids: frozenset[str]) -> bool:
        """Take links out of service; for the application's own thread. Whether other routes follow."""
        changed = self.keeper.drain(link_ids)
        self._send_orders()
        return changed

    def ask(self, call: Callable[[], Any]) -> Any:
        """The result of ``call``, made in the application's own thread; for other threads. Raises what it raises."""
        answers = hub.Queue()

        def answer() -> None:
            try:
                answers.put((call(), None))
            except RailbedError as error:
                answers.put((None, error))

        self.send_event(self.name, Asked(answer))
        result, error = answers.get()
        if error is not None:
            raise error
        return result

    # Orders become messages

    def _send_orders(self) -> None:
        """Send what the keeper wants sent, as far as not too much is under way."""
        self._waiting.extend(self.keeper.take())
        window = 0 if self.keeper.hurried else CALM_WINDOW
        barriers: list[tuple[_Connection, Any]] = []
        while self._waiting and not (window and self._under_way + len(barriers) >= window):
            order = self._waiting.popleft()
            connection = self._connections.get(order.switch_id)
            if connection is None:
                continue
            datapath = connection.datapath
            if isinstance(order, AskPorts):
                _send(connection, [openflow.port_desc_request(datapath)])
                continue
            _send(connection, order_messages(datapath, order, self.keeper.version))
            barrier = datapath.ofproto_parser.OFPBarrierRequest(datapath)
            datapath.set_xid(barrier)
            connection.tokens[barrier.xid] = order.token
            barriers.append((connection, barrier))
        # The barriers come after all orders, so that no switch waits for another's rules.
        for connection, barrier in barriers:
            _send(connection, [barrier])

    @property
    def _under_way(self) -> int:
        return sum(len(connection.tokens) for connection in self._connections.values())

    def _connection_of(self, datapath: Any) -> _Connection | None:
        """The connection of a datapath; None if its switch is undeclared or has connected anew since."""
        return next((each for each in self._connections.values() if each.datapath is datapath), None)


def order_messages(datapath: Any, order: Orders, version: int) -> list[Any]:
    """The messages of an order; their cookie is the version of the routes that they are part of."""
    return [
        *(openflow.group_add(datapath, group) for group in order.groups_added),
        *(openflow.group_modify(datapath, group) for group in order.groups_modified),
        *(openflow.flow_add(datapath, rule, version) for rule in order.rules_added),
        *(
            openflow.flow_delete(datapath, origin.priority, origin.match)
            if isinstance(origin, Rule)
            else openflow.flow_delete_stats(datapath, origin)
            for origin in order.deleted
        ),
        *(openflow.group_delete(datapath, group_id) for group_id in order.groups_deleted),
    ]


def _send(connection: _Connection, messages: Iterable[Any]) -> None:
    """Send messages in few writes: the framework queues 16 writes per switch, and then blocks."""
    datapath = connection.datapath
    pending = bytearray()
    for message in messages:
        if message.xid is None:
            datapath.set_xid(message)
        message.serialize()
        pending += message.buf
        if len(pending) >= _CHUNK_BYTES:
            datapath.send(bytes(pending))
            pending.clear()
    if pending:
        datapath.send(bytes(pending))


def _usable(port: Any, message: Any) -> bool:
    """Whether the switch itself would send by this port: LIVE is also taken away when a probe of the link fails."""
    ofproto = message.datapath.ofproto
    down = port.config & ofproto.OFPPC_PORT_DOWN or port.state & ofproto.OFPPS_LINK_DOWN
    return not down and bool(port.state & ofproto.OFPPS_LIVE)
