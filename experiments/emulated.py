"""The emulator as a back end of experiments: keeps one fabric standing as long as runs ask for the same one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from emulator import manager
from experiments.run import Progress
from topologies.model import Fabric
from topologies.scale import Scale
from workloads.failures import LinkFailure
from workloads.records import RunRecord
from workloads.schedule import Schedule


class EmulatorBackend:
    """Runs schedules on a live fabric of its own, named after this process."""

    def __init__(self, show: Progress) -> None:
        self._provenance: dict[str, str] = {}
        self._show = show
        self._name = f"run-{os.getpid()}"
        self._running: manager.RunningFabric | None = None

    def __call__(
        self,
        fabric: Fabric,
        scale: Scale,
        schedule: Schedule,
        failures: Sequence[LinkFailure],
        seed: int,
        progress: Callable[[float], None],
    ) -> RunRecord:
        """Replay ``schedule`` with iperf3; brings the fabric up first if another one (or none) is standing."""
        running = self._standing(fabric, scale, seed)
        return running.run(schedule, failures, seed, progress)

    def _standing(self, fabric: Fabric, scale: Scale, seed: int) -> manager.RunningFabric:
        running = self._running
        if running is not None and (running.spec, running.scale, running.seed) == (fabric.spec, scale, seed):
            return running
        self.close()
        self._show(f"bringing up {fabric.kind.value} with {len(fabric.gpus)} GPUs", None)
        self._running = manager.up(fabric.spec, scale, self._name, seed=seed)
        self._provenance = self._running.provenance()
        return self._running

    def provenance_now(self) -> dict[str, str]:
        """Versions of what the last fabric ran on; empty before the first."""
        return self._provenance

    def close(self) -> None:
        """Take the fabric down."""
        if self._running is not None:
            self._running = None
            manager.down(self._name)


@contextmanager
def emulator_backend(show: Progress) -> Iterator[EmulatorBackend]:
    """An emulator back end whose fabric is gone when the block ends, however it ends."""
    backend = EmulatorBackend(show)
    try:
        yield backend
    finally:
        backend.close()
