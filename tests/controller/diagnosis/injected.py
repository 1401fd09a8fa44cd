"""Runs of the simulator with something wrong in them, and what a watch over their telemetry tells."""

from controller.diagnosis.network import Network
from controller.diagnosis.replayed import Teller, reports
from controller.diagnosis.watch import Watch
from controller.routing import Routes
from simulator.fluid import simulate
from simulator.routes import controller_router
from topologies.builders import build, preset_spec
from topologies.model import FabricKind
from topologies.scale import default_scale
from workloads.collectives import collective_on
from workloads.repeated import posted_together, repeated

COMPUTING_S = 0.0005
"""Of the real machine; half an emulated second."""


def network(kind="rail-only", domains=4, rails=4):
    fabric = build(preset_spec("dgx-h100", FabricKind(kind), domains, rails))
    return Network(Routes(fabric), default_scale(fabric))


def run(kind="rail-only", failures=(), faults=(), collective="all-to-all", group="all", size=30_000_000, iterations=8,
        together=True):  # fmt: skip
    """The record of a repeated collective with failures of links and faults of ranks."""
    known = network(kind)
    one = collective_on(known.fabric, collective, group, size, name=collective)
    schedule = repeated(posted_together(one) if together else one, iterations, COMPUTING_S, faults)
    router = controller_router(known.fabric)
    return known, simulate(
        known.fabric, schedule, router, scale=default_scale(known.fabric), failures=tuple(failures), report_s=0.2
    )


def watched(known, record, spare_s=8.0):
    """The alarms over a run and ``spare_s`` after its last transfer, and the watch."""
    watch, teller = Watch(known), Teller(record.schedule, record.scale)
    watch.take(teller.begin())
    alarms = []
    last_s = max((one.end_s or 0.0 for one in record.transfers), default=0.0)
    for report in reports(record, last_s + spare_s):
        watch.take(teller.report(report))
        alarms += watch.look(report.t_s)
    return alarms, watch
