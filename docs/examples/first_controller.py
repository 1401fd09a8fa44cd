"""A first controller: shortest paths over live links, one rule per destination. Start from here.

Run it with ``sudo ./railbed up --controller docs/examples/first_controller.py``. It works, but it has no preference
among equal paths, and its rules pass through states in which packets are lost or go round: see ``railbed path``.
"""

import json
import os

from os_ken.base.app_manager import OSKenApp
from os_ken.controller import ofp_event
from os_ken.controller.handler import DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet import arp, ethernet, packet
from os_ken.ofproto import ofproto_v1_3

from topologies.addresses import ipv4, mac, parse_ipv4
from topologies.builders import build
from topologies.model import HOST_PORT, FabricSpec

ETH_IPV4, ETH_ARP = 0x0800, 0x0806


class FirstController(OSKenApp):
    """Knows the fabric beforehand, so it need not discover anything and never floods."""

    OFP_VERSIONS = (ofproto_v1_3.OFP_VERSION,)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.fabric = build(FabricSpec.from_dict(json.loads(os.environ["RAILBED_FABRIC"])))
        self.datapaths, self.down = {}, set()

    def next_ports(self, dst):
        """For every switch that reaches ``dst``: the port towards it. A breadth-first search from ``dst``."""
        ports, edge = {dst.switch_id: HOST_PORT}, [dst.switch_id]
        while edge:
            here = edge.pop(0)
            for link in self.fabric.links_of(here):
                there = link.other(here)
                if link.id not in self.down and there in self.fabric.switch_by_id and there not in ports:
                    ports[there] = link.port(there)
                    edge.append(there)
        return ports

    def install(self, datapath, priority, match, actions):
        """Add one rule; one of the same match and priority is overwritten."""
        parser = datapath.ofproto_parser
        instructions = [parser.OFPInstructionActions(datapath.ofproto.OFPIT_APPLY_ACTIONS, actions)]
        datapath.send_msg(
            parser.OFPFlowMod(datapath, priority=priority, match=parser.OFPMatch(**match), instructions=instructions)
        )

    def install_routes(self):
        """All rules for all destinations at all switches. (A better one sends only what has changed.)"""
        for dst in self.fabric.gpus:
            for switch_id, port in self.next_ports(dst).items():
                datapath = self.datapaths.get(switch_id)
                if datapath is not None:
                    match = {"eth_type": ETH_IPV4, "ipv4_dst": ipv4(dst.domain, dst.rail)}
                    self.install(datapath, 100, match, [datapath.ofproto_parser.OFPActionOutput(port)])

    @set_ev_cls(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])
    def switch_changed(self, event):
        """A switch has connected, or has gone."""
        switch = self.fabric.switch_by_dpid[event.datapath.id]
        if event.state == DEAD_DISPATCHER:
            self.datapaths.pop(switch.id, None)
            return
        self.datapaths[switch.id] = event.datapath
        to_us = event.datapath.ofproto_parser.OFPActionOutput(event.datapath.ofproto.OFPP_CONTROLLER)
        self.install(event.datapath, 200, {"eth_type": ETH_ARP, "in_port": HOST_PORT}, [to_us])
        if len(self.datapaths) == len(self.fabric.switches):
            self.install_routes()

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def port_changed(self, event):
        """A link has failed or come back; both of its ends tell, more than once."""
        switch = self.fabric.switch_by_dpid[event.msg.datapath.id]
        link = self.fabric.link_by_port.get((switch.id, event.msg.desc.port_no))
        if link is not None:
            broken = event.msg.desc.state & event.msg.datapath.ofproto.OFPPS_LINK_DOWN
            (self.down.add if broken else self.down.discard)(link.id)
            self.install_routes()

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def asked_for_an_address(self, event):
        """Answer an ARP request from a GPU: the MAC address follows from the IP address."""
        datapath, request = event.msg.datapath, packet.Packet(event.msg.data).get_protocol(arp.arp)
        if request is None or request.opcode != arp.ARP_REQUEST:
            return
        wanted = mac(*parse_ipv4(request.dst_ip))
        answer = packet.Packet()
        answer.add_protocol(ethernet.ethernet(request.src_mac, wanted, ETH_ARP))
        answer.add_protocol(arp.arp_ip(arp.ARP_REPLY, wanted, request.dst_ip, request.src_mac, request.src_ip))
        answer.serialize()
        parser, ofproto = datapath.ofproto_parser, datapath.ofproto
        out = [parser.OFPActionOutput(event.msg.match["in_port"])]
        datapath.send_msg(
            parser.OFPPacketOut(datapath, ofproto.OFP_NO_BUFFER, ofproto.OFPP_CONTROLLER, out, answer.data)
        )
