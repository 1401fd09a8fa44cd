"""The emulator as a back end of experiments: keeps one fabric standing as long as runs ask for the same one."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from emulator import manager
from emulator.capabilities import probe
from emulator.errors import NoSuchFabricError
from experiments.plan import PlannedRun
from experiments.run import Progress
from experiments.scenario import Scenario
from topologies.capabilities import missing
from topologies.errors import RailbedError
from workloads.records import RunRecord


def check_essential(scenario: Scenario) -> None:
    """Raise MissingCapabilityError if this machine lacks what the scenario calls essential."""
    if scenario.essential:
        missing(probe(), (), scenario.essential).refuse()


def marked(record: RunRecord, run: PlannedRun, held: Collection[str]) -> RunRecord:
    """``record`` with the failures as planned, marked where a machine that has ``held`` could not emulate all of it."""
    notes = missing(held, run.wanted).notes
    faithful = record.faithful and not notes
    return replace(record, failures=run.failures, notes=(*record.notes, *notes), faithful=faithful)


class EmulatorBackend:
    """Runs schedules on a live fabric of its own, named after this process."""

    def __init__(self, show: Progress) -> None:
        self._provenance: dict[str, str] = {}
        self._show = show
        self._name = f"run-{os.getpid()}"
        self._running: manager.RunningFabric | None = None
        self._is: tuple[object, ...] = ()

    def __call__(self, run: PlannedRun, seed: int, progress: Callable[[float], None]) -> RunRecord:
        """Replay the schedule; brings the fabric up first if another one (or none) is standing.

        A fabric on which a run went wrong is taken down: the next run gets a new one.
        """
        lacking = missing(probe(), run.wanted).others
        failures = [failure for failure in run.failures if failure.kind.value not in lacking]
        try:
            standing = self._standing(run)
            record = standing.run(
                run.schedule, failures, seed, progress, engine=run.engine, on_failure=run.on_failure,
                give_up_s=run.measure.give_up, sample_s=run.measure.sample_interval, probe=run.measure.probe,
                planning=run.planning,
            )  # fmt: skip
        except RailbedError:
            self.close()
            raise
        return marked(record, run, probe())

    def _standing(self, run: PlannedRun) -> manager.RunningFabric:
        wanted = (run.fabric.spec, run.scale, run.policy, run.bfd)
        if self._running is not None and self._is == wanted:
            return self._running
        self.close()
        fabric, policy = run.fabric, run.policy
        self._show(f"bringing up {fabric.kind.value} with {len(fabric.gpus)} GPUs", None)
        self._running = manager.up(
            fabric.spec, run.scale, self._name, seed=policy.seed, relay=policy.relay.value,
            local_repair=policy.local_repair, placement=policy.placement, bfd=run.bfd,
        )  # fmt: skip
        self._is = wanted
        self._provenance = self._running.provenance()
        return self._running

    def provenance_now(self) -> dict[str, str]:
        """Versions of what the last fabric ran on; empty before the first."""
        return self._provenance

    def close(self) -> None:
        """Take the fabric down."""
        if self._running is not None:
            self._running = None
            with suppress(NoSuchFabricError):  # it may have ended by itself
                manager.down(self._name)


@contextmanager
def emulator_backend(show: Progress) -> Iterator[EmulatorBackend]:
    """An emulator back end whose fabric is gone when the block ends, however it ends."""
    backend = EmulatorBackend(show)
    try:
        yield backend
    finally:
        backend.close()
