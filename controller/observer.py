"""Watches switches on behalf of Railbed while somebody else's application controls them. It sends nothing."""

from __future__ import annotations

from typing import Any

from controller.events import EventWriter
from controller.framework import DEAD, MAIN, OPENFLOW_1_3, App, end_process, handles, ofp_event
from topologies.model import Fabric


class Observer(App):  # type: ignore[misc]
    """Tells which switches are connected and which ports change."""

    OFP_VERSIONS = (OPENFLOW_1_3,)

    def __init__(self, fabric: Fabric, emit: EventWriter) -> None:
        """Tell it by ``emit``."""
        super().__init__()
        self._fabric = fabric
        self._emit = emit
        self._port_up: dict[tuple[str, int], bool] = {}

    def failed(self, message: str) -> None:
        """Report what is about to end the process."""
        self._emit("error", message=message)
        end_process(1)

    @handles(ofp_event.EventOFPStateChange, MAIN, DEAD)
    def on_state_change(self, event: Any) -> None:
        """A switch is connected, or has gone."""
        if event.datapath.id is None:
            return
        switch = self._fabric.switch_by_dpid.get(event.datapath.id)
        if switch is None:
            self._emit("unknown-switch", dpid=event.datapath.id)
        else:
            self._emit("switch-connected" if event.state == MAIN else "switch-lost", switch=switch.id)

    @handles(ofp_event.EventOFPPortStatus, MAIN)
    def on_port_status(self, event: Any) -> None:
        """A port has changed."""
        message = event.msg
        switch = self._fabric.switch_by_dpid.get(message.datapath.id)
        link = self._fabric.link_by_port.get((switch.id, message.desc.port_no)) if switch else None
        if switch is None or link is None:
            return
        up = not message.desc.state & message.datapath.ofproto.OFPPS_LINK_DOWN
        if self._port_up.get((switch.id, message.desc.port_no), True) != up:
            self._port_up[switch.id, message.desc.port_no] = up
            self._emit("port-up" if up else "port-down", switch=switch.id, port=message.desc.port_no, link=link.id)
