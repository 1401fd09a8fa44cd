"""Runs a workload of the catalogue on every fabric of the page at the same time, and tells what came out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dashboard.errors import ActionError
from dashboard.offers import schedule_of
from emulator.engines import Engine
from experiments.outcome import Outcome, analyse, completion_s, not_made
from simulator.fluid import simulate
from simulator.routes import controller_router
from topologies.errors import RailbedError
from workloads.records import RunRecord
from workloads.schedule import Schedule

if TYPE_CHECKING:
    from emulator.manager import RunningFabric

STOP_RETRY_S = 0.1

Publish = Callable[[dict[str, Any]], None]


class Stage(Protocol):
    """A fabric of the page, as the one who runs a workload on it needs it."""

    name: str

    def attach(self) -> RunningFabric:
        """The running fabric; raises NoSuchFabricError."""

    def expect(self, schedule: Schedule) -> None:
        """The next run that begins there is one of ``schedule``."""

    def publish(self, message: dict[str, Any]) -> None:
        """Show a message as one of this fabric."""


@dataclass(frozen=True)
class _Planned:
    """One fabric's part: what runs there, and what the fluid model says about it on the healthy fabric."""

    stage: Stage
    running: RunningFabric
    schedule: Schedule
    predicted: RunRecord


class WorkloadRunner:
    """Starts one workload at a time. Methods are called from any thread."""

    def __init__(self, stages: Sequence[Stage], publish: Publish) -> None:
        """``publish`` shows what is said of all fabrics together."""
        self._stages = stages
        self._publish = publish
        self._lock = threading.Lock()
        self._driver: threading.Thread | None = None
        self._stopping = threading.Event()

    def start(self, offer_id: str) -> dict[str, Any]:
        """Begin to plan and run a workload; the message about it.

        Raises ActionError while one runs and for what is not offered, NoSuchFabricError for a fabric that is gone.
        """
        with self._lock:
            if self._driver is not None and self._driver.is_alive():
                raise ActionError("a workload runs already: stop it first, or wait for it")
            pairs = [(stage, stage.attach()) for stage in self._stages]
            made = [(stage, running, schedule_of(offer_id, running.fabric)) for stage, running in pairs]
            self._stopping.clear()
            self._driver = threading.Thread(target=self._drive, args=(offer_id, made), daemon=True)
            self._driver.start()
        return _state(offer_id, "planning")

    def stop(self) -> dict[str, Any]:
        """End the workload; what was measured so far is shown. Raises ActionError if none runs."""
        driver = self._driver
        if driver is None or not driver.is_alive():
            raise ActionError("no workload of this page runs")
        self._stopping.set()
        return {"event": "said", "text": "the workload is being stopped"}

    def close(self) -> None:
        """End whatever runs, and wait for that."""
        self._stopping.set()
        if self._driver is not None:
            self._driver.join()

    def _drive(self, offer_id: str, made: Sequence[tuple[Stage, RunningFabric, Schedule]]) -> None:
        """Predict, run everywhere at once, tell what came out."""
        try:
            planned = [_planned(*one) for one in made]
            expected = {one.stage.name: completion_s(one.predicted) for one in planned}
            if self._stopping.is_set():
                return
            self._publish(_state(offer_id, "running", expected_s=expected))
            runs = [threading.Thread(target=self._run, args=(offer_id, one), daemon=True) for one in planned]
            for run in runs:
                run.start()
            while any(run.is_alive() for run in runs):
                if self._stopping.wait(STOP_RETRY_S):
                    self._stop_runs(planned, runs)
        except RailbedError as error:
            self._publish({"event": "said", "text": str(error)})
        finally:
            self._publish(_state(offer_id, "over"))

    def _stop_runs(self, planned: Sequence[_Planned], runs: Sequence[threading.Thread]) -> None:
        for one, run in zip(planned, runs, strict=True):
            # A run that was ordered a moment ago may not have begun: it is asked to end until it has.
            if run.is_alive():
                try:
                    one.running.stop_run()
                except RailbedError:
                    continue  # the fabric has ended, and its run with it
                run.join(STOP_RETRY_S)

    def _run(self, offer_id: str, planned: _Planned) -> None:
        stage, running, schedule = planned.stage, planned.running, planned.schedule
        stage.expect(schedule)
        try:
            # The agent says what it is doing while it does it, which iperf3 can't.
            record = running.run(schedule, seed=schedule.seed, engine=Engine.AGENT, probe=False)
            outcome = analyse(running.fabric.kind.value, running.fabric, record, planned.predicted, {})
        except RailbedError as error:
            outcome = not_made(running.fabric.kind.value, planned.predicted, "emulator", str(error))
        stage.publish(finished(offer_id, outcome, stopped=self._stopping.is_set()))


def _planned(stage: Stage, running: RunningFabric, schedule: Schedule) -> _Planned:
    return _Planned(stage, running, schedule, predicted(running, schedule))


def predicted(running: RunningFabric, schedule: Schedule) -> RunRecord:
    """What the fluid model says about a schedule on a running fabric while nothing is wrong with it."""
    fabric = running.fabric
    router = controller_router(fabric, running.policy())
    return simulate(fabric, schedule, router, scale=running.scale, seed=schedule.seed)


def finished(workload: str, outcome: Outcome, stopped: bool = False) -> dict[str, Any]:
    """The message about a run that is over; ``predicted_s`` is the fluid model's for the healthy fabric."""
    cut = stopped and outcome.status != "complete"
    return {
        "event": "finished", "workload": workload, "label": outcome.fabric, "condition": outcome.condition,
        "status": "stopped" if cut else outcome.status, "problems": [] if cut else list(outcome.problems),
        "duration_s": outcome.duration_s, "real_s": outcome.real_duration_s, "predicted_s": outcome.predicted_s,
        "busbw_gbps": outcome.busbw_gbps, "formula": outcome.busbw_formula, "slowdown": outcome.slowdown,
        "faithful": outcome.faithful, "notes": list(outcome.notes), "backend": outcome.backend,
    }  # fmt: skip


def _state(offer_id: str, state: str, **facts: Any) -> dict[str, Any]:
    return {"event": "workload", "workload": offer_id, "state": state, **facts}
