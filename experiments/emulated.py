"""The emulator as a back end of experiments: keeps one fabric standing as long as runs ask for the same one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from emulator import manager
from emulator.errors import NoSuchFabricError
from experiments.plan import PlannedRun
from experiments.run import Progress
from topologies.errors import RailbedError
from workloads.records import RunRecord


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
        try:
            standing = self._standing(run)
            return standing.run(
                run.schedule, run.failures, seed, progress, engine=run.engine, on_failure=run.on_failure
            )
        except RailbedError:
            self.close()
            raise

    def _standing(self, run: PlannedRun) -> manager.RunningFabric:
        wanted = (run.fabric.spec, run.scale, run.policy, run.bfd)
        if self._running is not None and self._is == wanted:
            return self._running
        self.close()
        fabric, policy = run.fabric, run.policy
        self._show(f"bringing up {fabric.kind.value} with {len(fabric.gpus)} GPUs", None)
        self._running = manager.up(
            fabric.spec, run.scale, self._name, seed=policy.seed, relay=policy.relay.value,
            local_repair=policy.local_repair, bfd=run.bfd,
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
