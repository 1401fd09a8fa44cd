"""One run on a live fabric: a schedule replayed while links fail as planned, and everything measured."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from controller.routing import Routes
from emulator.agent_replay import AgentReplay
from emulator.director import Director
from emulator.emulation import Emulation
from emulator.engines import Engine, engine_for
from emulator.errors import ReplayError
from emulator.kernel import prompt_threads
from emulator.names import link_interfaces
from emulator.planned_failures import FailureDrivers, impairment_for
from emulator.probe import Stream, StreamProcess, pair_across
from emulator.replay import Iperf3Replay
from emulator.run_order import RunOrder
from emulator.sampler import LinkSampler
from topologies.model import Failures, Gpu
from workloads.failures import LinkFailure
from workloads.records import Event, EventKind, RunRecord
from workloads.schedule import Schedule


def run_live(
    emulation: Emulation, order: RunOrder, progress: Callable[[float], None], cancelled: threading.Event
) -> RunRecord:
    """Replay a schedule on a live fabric while ``order.failures`` happen and end.

    Cancelling keeps what was measured and marks the rest in the record's notes. What happens is published in the
    emulation's feed meanwhile: ``run-start``, ``links`` and ``transfers`` five times a second, ``run-end``.
    """
    schedule, failures = order.schedule, order.failures
    for failure in failures:
        emulation.links.target(failure.link_id)
    engine = order.engine or engine_for(schedule, emulation.fabric, emulation.scale)
    if order.planning is not None:
        if order.engine is Engine.IPERF3:
            raise ReplayError("planned traffic is replayed by the agent: leave out the engine iperf3")
        engine = Engine.AGENT
    _check_ranks(emulation, schedule)
    notes: list[str] = []
    director = Director(emulation, schedule, order.planning) if order.planning is not None else None
    try:
        return _run(emulation, order, engine, director, notes, progress, cancelled)
    finally:
        if director is not None:
            director.finish()


def _run(
    emulation: Emulation,
    order: RunOrder,
    engine: Engine,
    director: Director | None,
    notes: list[str],
    progress: Callable[[float], None],
    cancelled: threading.Event,
) -> RunRecord:
    schedule, failures, publish = order.schedule, order.failures, emulation.feed.publish
    replay = _replay(emulation, order, engine, director, progress, cancelled)
    try:
        events_before = len(emulation.controller.events)
        probe = _start_probe(emulation, failures) if order.probe else None
        watch = emulation.watch_load(_impaired(emulation, failures))
        sampler = LinkSampler(emulation.fabric, order.sample_s)
        start_s = time.monotonic()
        publish({"event": "run-start", "name": schedule.name, "engine": engine.value, "start_s": start_s,
                 "transfers": len(schedule.transfers), "links": list(sampler.link_ids)})  # fmt: skip
        sampler.begin(start_s, publish)
        if director is not None and isinstance(replay, AgentReplay):
            director.begin(replay, start_s)
        drivers = FailureDrivers(
            failures, start_s, emulation.links.set_link, lambda failure, on: _impair_as(emulation, failure, on)
        )
        try:
            with prompt_threads() if failures else nullcontext():
                replay.run(start_s)
        except Exception as error:
            if not cancelled.is_set():
                raise
            notes.append(str(error))
        finally:
            driven = drivers.finish()
            probed = probe.stop() if probe else None
            series = sampler.stop()
            load = watch.stop()
            publish({"event": "run-end", "t_s": time.monotonic() - start_s})
    finally:
        replay.close()
    log = replay.log
    events = [*log.events, *driven, *_controller_events(emulation, events_before, start_s)]
    if director is not None:
        events += director.events
        notes += director.notes
    gap = probed.longest_gap() if probed else None
    if probed and gap:
        events.append(_gap_event(probed, *gap, start_s))
    return RunRecord(
        backend="emulator",
        fabric=emulation.fabric.spec,
        scale=emulation.scale,
        schedule=schedule,
        failures=failures,
        seed=order.seed,
        transfers=tuple(log.records),
        links=series,
        events=tuple(sorted(events, key=lambda event: event.t_s)),
        faithful=not load.overload and not cancelled.is_set(),
        notes=(*notes, *load.notes(), *log.notes),
        longest_gap_s=gap[0] if gap else None,
        last_computation_s=log.last_computation_s,
        engine=engine.value,
        connections=log.connections,
        progress=tuple(log.progress),
    )


def _replay(
    emulation: Emulation,
    order: RunOrder,
    engine: Engine,
    director: Director | None,
    progress: Callable[[float], None],
    cancelled: threading.Event,
) -> Iperf3Replay | AgentReplay:
    schedule = order.schedule
    parts = emulation.fabric, emulation.scale, emulation.devices.namespaces, schedule
    if engine is Engine.IPERF3:
        return Iperf3Replay(*parts, emulation.run_dir.path, cancelled, progress, order.on_failure)
    return AgentReplay(
        *parts,
        cancelled,
        progress,
        on_failure=order.on_failure,
        give_up_s=order.give_up_s,
        explain=_Partitions(emulation).why,
        follow=emulation.feed.publish,
        shares=director.shares if director is not None else None,
        measured=director.measured if director is not None else lambda _parts: None,
        telemetry=order.telemetry,
    )


def _check_ranks(emulation: Emulation, schedule: Schedule) -> None:
    gpus = len(emulation.fabric.gpus)
    if schedule.ranks > gpus:
        raise ReplayError(f"schedule '{schedule.name}' is for {schedule.ranks} GPUs, but the fabric has {gpus}")


class _Partitions:
    """Which pairs have no path just now; computed once for every set of links that are down."""

    def __init__(self, emulation: Emulation) -> None:
        self._emulation = emulation
        self._known: dict[frozenset[str], set[tuple[Gpu, Gpu]]] = {}

    def why(self, src_rank: int, dst_rank: int) -> str:
        """That a pair is partitioned, and by what; empty if it isn't."""
        fabric = self._emulation.fabric
        down = frozenset(self._emulation.links.links_unused())
        if down not in self._known:
            self._known[down] = set(Routes(fabric, Failures(links=down)).partitioned()) if down else set()
        src, dst = fabric.gpu_of_rank(src_rank), fabric.gpu_of_rank(dst_rank)
        if (src, dst) not in self._known[down]:
            return ""
        return f"partitioned, no path from {src.id} to {dst.id} while {', '.join(sorted(down))} is down"


def _impaired(emulation: Emulation, failures: Sequence[LinkFailure]) -> set[str]:
    """Interfaces of the links that don't have, or will not keep, a rate of their own."""
    names = {failure.link_id for failure in failures} | {str(one["link"]) for one in emulation.links.impairments()}
    return {interface for name in names for interface in link_interfaces(emulation.fabric.link(name))}


def _impair_as(emulation: Emulation, failure: LinkFailure, on: bool) -> None:
    own_mbps = emulation.scale.emulated_rate_mbps(emulation.fabric.link(failure.link_id).rate_mbps)
    emulation.links.impair(failure.link_id, impairment_for(failure, on, own_mbps))


def _start_probe(emulation: Emulation, failures: Sequence[LinkFailure]) -> StreamProcess | None:
    """A probe whose healthy path crosses the first failing link for which there is one."""
    for failure in failures:
        pair = pair_across(emulation.fabric, failure.link_id, emulation.policy, emulation.links.links_down())
        if pair is not None:
            return StreamProcess(emulation.devices.namespaces, *pair)
    return None


def _controller_events(emulation: Emulation, since: int, start_s: float) -> list[Event]:
    return [
        Event(event["t_s"] - start_s, EventKind.REROUTED, ",".join(event["links_down"]) or "all links up")
        for event in emulation.controller.events[since:]
        if event["event"] == "repaired"
    ]


def _gap_event(probed: Stream, gap_s: float, end_s: float, start_s: float) -> Event:
    detail = f"longest gap {gap_s * 1000:.0f} ms; {len(probed.arrivals)} of {probed.sent} probes arrived"
    return Event(end_s - gap_s - start_s, EventKind.NOTE, "probe", detail)
