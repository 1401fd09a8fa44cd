"""The diagnosis of a run, from its record: what a watch over its telemetry would have told, and when."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from controller.diagnosis.collector import LinkCounters
from controller.diagnosis.network import Network
from controller.diagnosis.replayed import REPORT_S, Teller, reports
from controller.diagnosis.thresholds import DEFAULT, Thresholds
from controller.diagnosis.watch import Alarm, Watch
from workloads.records import RunRecord

SPARE_S = 8.0
"""How long after its last transfer a run is watched: a hang shows by nothing happening."""


def run_alarms(
    record: RunRecord, network: Network, limits: Thresholds = DEFAULT, spare_s: float = SPARE_S
) -> Iterator[tuple[float, list[Alarm], Watch]]:
    """Report by report of a run: its time, the alarms that are new, and the watch; stop asking to stop looking.

    It is watched until ``spare_s`` after its last transfer, or until the end of a run in which all was complete.
    """
    watch, teller = Watch(network, limits, record.links.link_ids), Teller(record.schedule, record.scale)
    watch.take(teller.begin())
    last_s = max((one.end_s or 0.0 for one in record.transfers), default=0.0)
    for report in reports(record, last_s + (0.0 if record.complete else spare_s), REPORT_S):
        watch.take(teller.report(report), _counters(record, report.t_s))
        yield report.t_s, watch.look(report.t_s), watch


def _counters(record: RunRecord, t_s: float) -> LinkCounters | None:
    """What the links' counters said by then; None where the run has no samples."""
    links = record.links
    if not len(links.t_s):
        return None
    after = min(int(np.searchsorted(links.t_s, t_s)), len(links.t_s) - 1)
    before = max(0, after - 1)
    width_s = float(links.t_s[after] - links.t_s[before])
    part = min(1.0, (t_s - float(links.t_s[before])) / width_s) if width_s > 0 else 1.0
    sides = (links.a_to_b_bytes, links.b_to_a_bytes)
    return LinkCounters(t_s, *(side[before] + part * (side[after] - side[before]) for side in sides))
