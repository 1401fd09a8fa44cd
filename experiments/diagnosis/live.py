"""The diagnosis of a running fabric, from its feed; and trials of it, with faults injected into live runs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from controller.diagnosis.collector import LinkCounters
from controller.diagnosis.network import Network
from controller.diagnosis.telemetry import from_row
from controller.diagnosis.thresholds import DEFAULT, Thresholds
from controller.diagnosis.watch import Alarm, Watch
from controller.routing import Routes
from emulator.engines import Engine
from emulator.errors import ReplayError
from emulator.manager import RunningFabric
from emulator.sampler import sampled_links
from experiments.diagnosis.injections import Injection, Setting, schedule_of
from experiments.diagnosis.trials import AFTERWARDS_S, Trial, judged, onset_s
from topologies.model import Failures
from workloads.failures import LinkFailure
from workloads.records import RunRecord
from workloads.schedule import Schedule

DEADLINE_S = 15.0
"""How long after an injection an alarm is waited for."""

HEALTHY_ITERATIONS, HEALTHY_ITERATION_S = 60, 2.0
"""Iterations of a healthy run at most, and about how long one is."""

MOST_WAITING = 1_000
"""Messages of a fabric that may wait for the diagnosis."""

GIVE_UP_S = 25.0
"""A transfer that does not move is given up so late in trials that the diagnosis is there first."""


def network_now(running: RunningFabric) -> Network:
    """What the routing knows of a running fabric, with the links that are down at this moment."""
    down = frozenset(running.status()["links_down"])
    return Network(Routes(running.fabric, Failures(links=down), running.policy()), running.scale)


def live_alarms(
    running: RunningFabric, network: Network, limits: Thresholds = DEFAULT, wait_s: float = DEADLINE_S
) -> Iterator[tuple[float, list[Alarm], Watch]]:
    """Follow the fabric: at every report of a run its time, the alarms that are new, and the watch.

    Ends with the run, with the fabric, or when nothing has been told for ``wait_s``.
    """
    watch = Watch(network, limits, sampled_links(running.fabric))
    counters: LinkCounters | None = None
    for message in _messages(running, wait_s):
        if message["event"] == "run-end":
            return
        if message["event"] == "links":
            counters = LinkCounters(message["t_s"], message["a_to_b_bytes"], message["b_to_a_bytes"])
        elif message["event"] == "telemetry":
            watch.take([from_row(row) for row in message["items"]], counters)
            counters = None
            yield message["t_s"], watch.look(message["t_s"]), watch


def _messages(running: RunningFabric, wait_s: float) -> Iterator[dict[str, Any]]:
    """The fabric's feed, read by a thread so that silence ends it."""
    told: queue.Queue[dict[str, Any] | None] = queue.Queue(MOST_WAITING)
    over = threading.Event()

    def read() -> None:
        for message in running.follow():
            if over.is_set():
                return
            with suppress(queue.Full):  # who looks is too slow: the newest are lost, and come again
                told.put_nowait(message)
        told.put(None)

    threading.Thread(target=read, name="follow", daemon=True).start()
    try:
        while (message := told.get(timeout=wait_s)) is not None:
            yield message
    except queue.Empty:
        return
    finally:
        over.set()


class BackgroundRun:
    """A run on a fabric while this thread does something else; :meth:`stop` ends it and gives its record."""

    def __init__(
        self,
        running: RunningFabric,
        schedule: Schedule,
        failures: Sequence[LinkFailure] = (),
        *,
        telemetry: bool = True,
    ) -> None:
        self._running = running
        self._record: list[RunRecord | Exception] = []

        def run() -> None:
            try:
                record = running.run(
                    schedule, failures, engine=Engine.AGENT, give_up_s=GIVE_UP_S, probe=False, telemetry=telemetry
                )
                self._record.append(record)
            except Exception as error:
                self._record.append(error)

        self._thread = threading.Thread(target=run, name="trial", daemon=True)
        self._thread.start()

    def stop(self) -> RunRecord:
        """End the run if it still goes on; raises what went wrong in it."""
        if self._thread.is_alive():
            self._running.stop_run()
        return self.wait()

    def wait(self) -> RunRecord:
        """Wait until the run has ended; raises what went wrong in it."""
        self._thread.join()
        found = self._record[0]
        if isinstance(found, Exception):
            raise found
        return found


def live_trial(
    running: RunningFabric, network: Network, injection: Injection, seed: int, iteration_s: float, guards: str
) -> Trial:
    """Make an injection on a running fabric, and end the run some seconds after the first alarm.

    ``iteration_s`` is a healthy iteration's time, ``guards`` says whether BFD and local repair are on.
    """
    schedule = schedule_of(running.fabric, injection.setting, injection.ranks, seed)
    run = BackgroundRun(running, schedule, injection.failures(iteration_s))
    alarms: list[Alarm] = []
    latest = injection.at_iteration if injection.links else injection.ranks[0].iteration + 1
    latest_s = latest * iteration_s + DEADLINE_S
    for t_s, news, _ in live_alarms(running, network):
        alarms += news
        waited_s = AFTERWARDS_S * len(injection.truths) ** 2
        if t_s > (alarms[0].t_s + waited_s if alarms else latest_s):
            break
    record = run.stop()
    if not record.transfers:
        raise ReplayError(f"injection {injection.number} ({injection.what}) had no transfers")
    began_s = onset_s(injection, record, iteration_s)
    early = [one for one in alarms if one.t_s < began_s]
    trial = judged(injection, network, [one for one in alarms if one.t_s >= began_s], began_s, iteration_s, guards)
    return replace(trial, extra=(*(one.verdict.text for one in early), *trial.extra))


def healthy_alarms(
    running: RunningFabric, network: Network, setting: Setting, seconds: float, seed: int = 0
) -> tuple[float, list[Alarm]]:
    """Watch healthy runs of a setting for at least ``seconds`` of their own time: how long it was, and all alarms."""
    watched_s, alarms = 0.0, []
    while watched_s < seconds:
        iterations = max(4, min(HEALTHY_ITERATIONS, int((seconds - watched_s) / HEALTHY_ITERATION_S)))
        run = BackgroundRun(running, schedule_of(running.fabric, setting, seed=seed, iterations=iterations))
        last_s = 0.0
        for last_s, news, _ in live_alarms(running, network):  # noqa: B007 - the last one counts
            alarms += news
        run.wait()
        if not last_s:
            raise ReplayError(f"a healthy run of {iterations} iterations told nothing")
        watched_s += last_s
    return watched_s, alarms
