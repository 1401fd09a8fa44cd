"""What can be started from the page; how it is started, told of and stopped, on fabrics that only pretend."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from controller.policy import RoutingPolicy
from dashboard.errors import ActionError
from dashboard.offers import offers, schedule_of
from dashboard.workload import WorkloadRunner
from emulator.errors import EmulatorError
from simulator.fluid import simulate
from simulator.routes import controller_router
from topologies.builders import build
from topologies.model import Fabric, FabricKind, FabricSpec
from topologies.scale import default_scale
from workloads.records import RunRecord
from workloads.schedule import Schedule

GRACE_S = 30.0
WORKLOAD = "first-light/all-reduce"


def gpus(domains: int, rails: int, kind: FabricKind = FabricKind.RAIL_ONLY) -> Fabric:
    return build(FabricSpec(kind, domains, rails))


def test_what_is_offered_can_be_made() -> None:
    both = [gpus(4, 4), gpus(4, 4, FabricKind.RAIL_OPTIMIZED)]
    found = [offer.id for offer in offers(both)]
    assert {WORKLOAD, "parity/iteration", "incast/12 to 1", "scale/16 GPUs"} <= set(found)
    assert len(set(found)) == len(found)
    for offer_id in found:
        made = [schedule_of(offer_id, fabric) for fabric in both]
        assert made[0].transfers == made[1].transfers  # the same flows on both


def test_what_does_not_fit_is_not_offered() -> None:
    small = {offer.id for offer in offers([gpus(2, 2)])}
    assert "scale/4 GPUs" in small
    assert not {"scale/16 GPUs", "parity/iteration", "incast/12 to 1"} & small
    assert {offer.id for offer in offers([gpus(2, 2), gpus(4, 4)])} < small


@pytest.mark.parametrize(
    ("offer_id", "said"),
    [("first-lite/all-reduce", "first-light"), ("first-light/all-recude", "all-reduce"), ("scale/64 GPUs", "4 GPUs")],
)
def test_what_is_not_offered_is_refused(offer_id: str, said: str) -> None:
    with pytest.raises(ActionError, match=said):
        schedule_of(offer_id, gpus(2, 2))


class Pretended:
    """A running fabric whose runs are simulated; one that ``waits`` ends its run only when it is stopped."""

    def __init__(self, fabric: Fabric, waits: bool = False, error: str = "") -> None:
        self.fabric = fabric
        self.scale = default_scale(fabric)
        self.began = threading.Event()
        self.stopped = threading.Event()
        self._waits, self._error = waits, error

    def policy(self) -> RoutingPolicy:
        return RoutingPolicy()

    def run(self, schedule: Schedule, **_options: Any) -> RunRecord:
        self.began.set()
        if self._error:
            raise EmulatorError(self._error)
        record = simulate(self.fabric, schedule, controller_router(self.fabric), scale=self.scale)
        if self._waits:
            assert self.stopped.wait(GRACE_S)
            return RunRecord(**{**vars(record), "transfers": (), "faithful": False, "notes": ("interrupted",)})
        return record

    def stop_run(self) -> bool:
        self.stopped.set()
        return True


class Shelf:
    """A fabric of the page that keeps what is shown."""

    def __init__(self, name: str, running: Pretended, shown: list[dict[str, Any]]) -> None:
        self.name, self._running, self._shown = name, running, shown
        self.expected: list[Schedule] = []

    def attach(self) -> Any:
        return self._running

    def expect(self, schedule: Schedule) -> None:
        self.expected.append(schedule)

    def publish(self, message: dict[str, Any]) -> None:
        self._shown.append({**message, "on": self.name})


def runner(*running: Pretended) -> tuple[WorkloadRunner, list[Shelf], list[dict[str, Any]], threading.Event]:
    shown: list[dict[str, Any]] = []
    over = threading.Event()
    shelves = [Shelf(f"f{number}", one, shown) for number, one in enumerate(running)]

    def publish(message: dict[str, Any]) -> None:
        shown.append(message)
        if message.get("state") == "over":
            over.set()

    return WorkloadRunner(shelves, publish), shelves, shown, over


def test_the_same_workload_runs_on_both_fabrics() -> None:
    both = Pretended(gpus(2, 2)), Pretended(gpus(2, 2, FabricKind.RAIL_OPTIMIZED))
    made, shelves, shown, over = runner(*both)
    assert made.start(WORKLOAD)["state"] == "planning"
    assert over.wait(GRACE_S)
    finished = [message for message in shown if message["event"] == "finished"]
    assert {(one["on"], one["label"], one["status"]) for one in finished} == {
        ("f0", "rail-only", "complete"), ("f1", "rail-optimized", "complete")
    }  # fmt: skip
    assert all(one["duration_s"] == pytest.approx(one["predicted_s"]) and one["busbw_gbps"] > 0 for one in finished)
    assert [message["state"] for message in shown if message["event"] == "workload"] == ["running", "over"]
    assert shelves[0].expected[0].transfers == shelves[1].expected[0].transfers


def test_one_at_a_time_and_stopping_ends_it_everywhere() -> None:
    both = Pretended(gpus(2, 2), waits=True), Pretended(gpus(2, 2), waits=True)
    made, _, shown, over = runner(*both)
    with pytest.raises(ActionError, match="no workload"):
        made.stop()
    made.start(WORKLOAD)
    assert all(one.began.wait(GRACE_S) for one in both)
    with pytest.raises(ActionError, match="runs already"):
        made.start(WORKLOAD)
    made.stop()
    assert over.wait(GRACE_S)
    statuses = [(message["status"], message["problems"]) for message in shown if message["event"] == "finished"]
    assert statuses == [("stopped", [])] * 2
    made.close()
    made.start(WORKLOAD)
    made.close()


def test_a_run_that_cannot_be_made_says_why_and_the_other_goes_on() -> None:
    made, _, shown, over = runner(Pretended(gpus(2, 2)), Pretended(gpus(2, 2), error="another run is using it"))
    made.start(WORKLOAD)
    assert over.wait(GRACE_S)
    told = {message["on"]: message for message in shown if message["event"] == "finished"}
    assert told["f0"]["status"] == "complete"
    assert (told["f1"]["status"], told["f1"]["problems"]) == ("not made", ["another run is using it"])
