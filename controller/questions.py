"""What the northbound interface answers: the keeper's state, put into JSON's terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.errors import NorthboundError
from controller.framework import NAME, hub, version
from controller.northbound import Answer, Query, Take, wanted
from controller.placement import Placement

if TYPE_CHECKING:
    from controller.app import ControllerApp

SWITCH_TIMEOUT_S = 3.0


class Questions:
    """Answers from a running application; every one is worked out in the application's own thread."""

    def __init__(self, app: ControllerApp) -> None:
        """Ask ``app``."""
        self._app = app
        self._keeper = app.keeper

    def answers(self) -> dict[str, Answer]:
        """The answers by path."""
        return {"/state": self.state, "/paths": self.paths, "/failures": self.failures, "/counters": self.counters}

    def takes(self) -> dict[str, Take]:
        """What can be told, by path."""
        return {"/placement": self.place, "/drained": self.drain}

    def state(self, query: Query) -> dict[str, Any]:
        """Fabric, routes and switches."""
        wanted(query)
        return dict(self._app.ask(self._state))

    def _state(self) -> dict[str, Any]:
        keeper = self._keeper
        connected = keeper.connected
        return {
            "framework": f"{NAME} {version()}",
            "fabric": keeper.fabric.spec.to_dict(),
            "policy": {
                "relay": keeper.policy.relay_on(keeper.fabric).value,
                "seed": keeper.policy.seed,
                "local_repair": keeper.policy.local_repair,
                "placed_connections": _connections(keeper.routes.policy.placement),
            },
            "ready": keeper.ready,
            "version": keeper.version,
            "stage": keeper.stage.value,
            "links_down": sorted(keeper.links_down()),
            "switches": len(keeper.fabric.switches),
            "switches_connected": connected,
            "switches_missing": sorted(set(keeper.fabric.switch_by_id) - set(connected)),
        }

    def place(self, value: Any) -> dict[str, Any]:
        """Place connections as ``value`` says: the form of a placement file, or null for what was at the start."""
        placement = None if value is None else Placement.from_dict(value)
        self._app.ask(lambda: self._app.place(placement))
        return {"placed_connections": _connections(placement)}

    def drain(self, value: Any) -> dict[str, Any]:
        """Take the links of a list out of service, and all others into it."""
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise NorthboundError("what is drained is a list of link ids; an empty one takes all into service")
        changed = self._app.ask(lambda: self._app.drain(frozenset(value)))
        return {"changed": changed, "links_down": sorted(self._app.ask(self._keeper.links_down))}

    def paths(self, query: Query) -> dict[str, Any]:
        """The path in force between two GPUs, or of one connection between them."""
        src, dst = (self._keeper.fabric.gpu(name) for name in wanted(query, "src", "dst", optional=("channel",)))
        channel = query.get("channel")
        if channel is not None and not channel.isdecimal():
            raise NorthboundError(f"channel is '{channel}': it must be a whole number, 0 for the first channel")
        number = None if channel is None else int(channel)
        path = self._app.ask(lambda: self._keeper.routes.path(src, dst, number))
        return {
            "src": src.id,
            "dst": dst.id,
            "channel": number,
            "partitioned": path is None,
            "links": list(path.links) if path else [],
            "relays": [gpu.id for gpu in path.relays] if path else [],
            "hops": [
                {"switch": hop.switch_id, "in_port": hop.in_port, "out_port": hop.out_port}
                for hop in (path.hops if path else ())
            ],
        }

    def failures(self, query: Query) -> dict[str, Any]:
        """What is broken, and whom it cuts off."""
        wanted(query)
        return dict(self._app.ask(self._failures))

    def _failures(self) -> dict[str, Any]:
        pairs = self._keeper.routes.partitioned()
        return {
            "links_broken": sorted(self._keeper.broken),
            "links_drained": sorted(self._keeper.drained),
            "links_held_down_s": self._keeper.held_down_s(),
            "partitioned": [[src.id, dst.id] for src, dst in pairs],
        }

    def counters(self, query: Query) -> dict[str, Any]:
        """A switch's counters, asked for at this moment."""
        (switch_id,) = wanted(query, "switch")
        self._keeper.fabric.links_of(switch_id)
        if switch_id not in self._keeper.fabric.switch_by_id:
            raise NorthboundError(f"'{switch_id}' is no switch: a GPU's own switch is called s3r1 for GPU d3r1", 404)
        told = hub.Queue()
        self._app.ask(lambda: self._app.ask_counters(switch_id, told.put))
        try:
            found = told.get(timeout=SWITCH_TIMEOUT_S)
        except hub.QueueEmpty:
            found = None
        if found is None:
            raise NorthboundError(f"switch {switch_id} does not answer: it may have lost its connection", 504)
        return dict(found)


def _connections(placement: Placement | None) -> int:
    return len(placement.ways) if placement is not None else 0
