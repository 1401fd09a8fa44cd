"""Railbed's fabrics for stock Mininet's command line.

``mn --custom topologies/mn.py --topo rail_only,4,4 --switch railbed --link railbed --controller railbed``

Mininet executes this file without ``__file__`` and under its own interpreter, so the checkout is found through the
code object's file name, and nothing here needs a package that Mininet does not bring. The switch, link and controller
classes belong to the emulator; they are looked up by name, so that no other module of this package depends on it.
"""

import importlib
import os
import sys
from inspect import currentframe

from mininet.topo import Topo

_frame = currentframe()
assert _frame is not None
_CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(_frame.f_code.co_filename)))
if _CHECKOUT not in sys.path:
    sys.path.insert(0, _CHECKOUT)

from topologies.addresses import NETWORK_PREFIX_BITS, ipv4, mac  # noqa: E402
from topologies.builders import build  # noqa: E402
from topologies.model import Fabric, FabricKind, FabricSpec, LinkKind  # noqa: E402
from topologies.scale import default_scale, link_rate_mbps  # noqa: E402


class FabricTopo(Topo):  # type: ignore[misc]
    """A Railbed fabric as a Mininet topology. Subclasses say which kind."""

    kind: FabricKind
    fabric: Fabric

    def build(self, domains: int = 4, rails: int = 4, **values: float) -> None:
        """Describe hosts, switches and links; ``values`` are further fields of FabricSpec, e.g. ``spines=2``."""
        self.fabric = build(FabricSpec(kind=self.kind, domains=domains, rails=rails, **values))  # type: ignore[arg-type]
        _live.declare(self.fabric)
        scale = default_scale(self.fabric)
        for gpu in self.fabric.gpus:
            address = f"{ipv4(gpu.domain, gpu.rail)}/{NETWORK_PREFIX_BITS}"
            self.addHost(gpu.id, ip=address, mac=mac(gpu.domain, gpu.rail))
        for switch in self.fabric.switches:
            self.addSwitch(switch.id, dpid=f"{switch.dpid:016x}")
        for link in self.fabric.links:
            rate_mbps = None if link.kind is LinkKind.HOST else link_rate_mbps(link, scale)
            self.addLink(link.a, link.b, port1=link.a_port, port2=link.b_port, rate_mbps=rate_mbps)


class RailOnlyTopo(FabricTopo):
    """``rail_only,DOMAINS,RAILS``: one switch per rail, joined to nothing else."""

    kind = FabricKind.RAIL_ONLY


class RailOptimizedTopo(FabricTopo):
    """``rail_optimized,DOMAINS,RAILS``: the rail switches are leaves, joined by spines."""

    kind = FabricKind.RAIL_OPTIMIZED


class SpineLeafTopo(FabricTopo):
    """``spine_leaf,DOMAINS,RAILS``: all NICs of a domain on one leaf, spines above."""

    kind = FabricKind.SPINE_LEAF


class IdealTopo(FabricTopo):
    """``ideal,DOMAINS,RAILS``: all GPUs in one NVLink domain."""

    kind = FabricKind.IDEAL


topos = {
    "rail_only": RailOnlyTopo,
    "rail_optimized": RailOptimizedTopo,
    "spine_leaf": SpineLeafTopo,
    "ideal": IdealTopo,
}

_live = importlib.import_module("emulator.stock_mininet")
switches = {"railbed": _live.RailbedSwitch}
controllers = {"railbed": _live.RailbedController}
links = {"railbed": _live.RailbedLink}
# Mininet 2.3 forgets to register `links` of a custom file (a comma is missing in its list of names) but replaces its
# table when the file defines one of that name.
LINKS = {**getattr(sys.modules["__main__"], "LINKS", {}), **links}
