"""How well the diagnosis finds what was broken on purpose: detection time, accuracy, false alarms.

Prints tables and, with ``--json``, one object on the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from functools import cache
from itertools import islice
from statistics import median

from cli.output import table
from emulator import manager
from experiments.diagnosis.injections import WHATS, Setting, Traffic, injections, schedule_of
from experiments.diagnosis.live import BackgroundRun, healthy_alarms, live_alarms, live_trial, network_now
from experiments.diagnosis.trials import Trial, by, iteration_s, network_of, score, simulated
from experiments.diagnosis.watching import run_alarms
from simulator.fluid import simulate
from simulator.routes import controller_router
from topologies.builders import build, preset_spec
from topologies.model import FabricKind
from topologies.scale import default_scale

KINDS = (FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED, FabricKind.SPINE_LEAF)
FABRICS = {kind: build(preset_spec("dgx-h100", kind, 4, 4)) for kind in KINDS}
HEALTHY_ITERATIONS = 30
LIVE_NAME = f"dg-{os.getpid()}"
GUARDED = ("degraded NIC", "degraded NVLink", "slow rank", "degraded NIC and slow rank")
UNGUARDED = ("silent NIC", "silent NVLink", "absent rank", "stopped rank")
WITH_SPINES = ("degraded leaf-spine link", "silent leaf-spine link")
LIVE_TRAFFICS = (Traffic.TOGETHER,)
"""In turn, the messages of the default scale last 45 ms: too short to be judged on live hosts."""

FRAMEWORK_TIMEOUT_S = 1800.0
"""A framework's own time-out, recalled and not checked (C4: about 30 minutes)."""


@cache
def healthy_s(setting: Setting, seed: int) -> float:
    return iteration_s(FABRICS[setting.kind], setting, seed)


def simulated_trials(first: int, count: int, seed: int, whats: tuple[str, ...]) -> Iterator[Trial]:
    for injection in islice(injections(FABRICS, first + count, seed, whats), first, None):
        setting = injection.setting
        yield simulated(injection, FABRICS[setting.kind], seed, healthy_s(setting, seed))


def live_trials(first: int, count: int, seed: int, kind: FabricKind, guarded: bool) -> Iterator[Trial]:
    """Injections on one live fabric: blackholes and hanging ranks without guards, all that is slow with them."""
    whats = (GUARDED if guarded else UNGUARDED) + ((WITH_SPINES[not guarded],) if kind is not KINDS[0] else ())
    guards = "BFD on, local repair on" if guarded else "BFD off, local repair off"
    fabric = FABRICS[kind]
    with closing(manager.up(fabric.spec, name=LIVE_NAME, bfd=guarded, local_repair=guarded)) as running:
        network = network_now(running)
        for injection in islice(injections({kind: fabric}, first + count, seed, whats, LIVE_TRAFFICS), first, None):
            yield live_trial(running, network, injection, seed, healthy_s(injection.setting, seed), guards)


MODES = ("off", "telemetry", "telemetry and diagnosis")


def cost(rounds: int, seed: int) -> dict[str, float]:
    """Completion of a healthy live run in each mode, in turn: the median over that without telemetry, minus 1."""
    setting = Setting(FabricKind.RAIL_ONLY, Traffic.TOGETHER, False)
    fabric = FABRICS[setting.kind]
    schedule = schedule_of(fabric, setting, seed=seed, iterations=6)
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    with closing(manager.up(fabric.spec, name=LIVE_NAME)) as running:
        network = network_now(running)
        for _ in range(rounds):
            for mode in MODES:
                run = BackgroundRun(running, schedule, telemetry=mode != MODES[0])
                for _ in live_alarms(running, network) if mode == MODES[2] else ():
                    pass
                times[mode].append(max(one.end_s or 0.0 for one in run.wait().transfers))
                print(f"{mode}: {times[mode][-1]:.3f} s", flush=True)
    usual_s = median(times[MODES[0]])
    pairs = list(zip(*times.values(), strict=True))
    found = {f"{mode}_s": median(times[mode]) for mode in MODES}
    for place, mode in enumerate(MODES[1:], 1):
        found[f"{mode}_cost"] = median(times[mode]) / usual_s - 1
        found[f"{mode}_median_pair_cost"] = median(pair[place] / pair[0] - 1 for pair in pairs)
    return found


def live_false_alarms(minutes: float, seed: int) -> None:
    """Healthy minutes on a live fabric, half of them beside other jobs."""
    fabric = FABRICS[FabricKind.RAIL_ONLY]
    with closing(manager.up(fabric.spec, name=LIVE_NAME, bfd=True)) as running:
        for background in (False, True):
            setting = Setting(FabricKind.RAIL_ONLY, Traffic.TOGETHER, background)
            watched_s, alarms = healthy_alarms(running, network_now(running), setting, minutes * 30, seed)
            beside = "beside other jobs" if background else "alone"
            print(f"healthy, {beside}: {len(alarms)} alarms in {watched_s / 60:.1f} minutes", flush=True)
            for alarm in alarms:
                print(f"false alarm after {alarm.t_s:.1f} s: {alarm.verdict.text} ({alarm.verdict.evidence.text})")


def tell(one: Trial) -> None:
    """Print a trial in a line."""
    beside = ", beside other jobs" if one.background else ""
    extra = f" | extra: {'; '.join(one.extra)}" if one.extra else ""
    where = f"{one.what} on {one.fabric}, {one.traffic}{beside}"
    told = "; ".join(one.told) or "nothing"
    after = number(one.detected_s)
    print(
        f"#{one.number} {one.result} after {after} s: {where}: {'; '.join(one.truths)} | told: {told}{extra}",
        flush=True,
    )


def stored(path: str) -> list[Trial]:
    """Trials that earlier runs of this benchmark have appended to a file."""
    with open(path) as file:
        read = [json.loads(line) for line in file]
    for one in read:
        for key in ("truths", "told", "extra"):
            one[key] = tuple(one[key])
    return [Trial(**one) for one in read]


def false_alarms(seeds: int) -> dict[str, dict[str, float]]:
    """Alarms in healthy runs of all settings, and the emulated hours that these lasted."""
    found = {}
    for background in (False, True):
        alarms, seconds = [], 0.0
        for seed in range(seeds):
            for kind, fabric in FABRICS.items():
                for traffic in Traffic:
                    setting = Setting(kind, traffic, background)
                    schedule = schedule_of(fabric, setting, seed=seed, iterations=HEALTHY_ITERATIONS)
                    record = simulate(fabric, schedule, controller_router(fabric), scale=default_scale(fabric),
                                      report_s=0.2)  # fmt: skip
                    t_s = 0.0
                    for t_s, news, _ in run_alarms(record, network_of(fabric)):  # noqa: B007 - the last one counts
                        alarms += [f"{kind.value}, {traffic.value}: {one.verdict.text}" for one in news]
                    seconds += t_s
        name = "beside other jobs" if background else "alone"
        found[name] = {"alarms": len(alarms), "hours": seconds / 3600, "alarms_per_hour": len(alarms) / seconds * 3600}
        for alarm in dict.fromkeys(alarms):
            print(f"false alarm, {name}: {alarm}")
    return found


def rows(trials: list[Trial], key: str) -> list[tuple[str, ...]]:
    lines = []
    for name, some in (("all", trials), *by(trials, key).items()):
        one = score(some)
        lines.append((
            name, str(one.trials), *(share(value) for value in (one.correct, one.ambiguous, one.wrong, one.missed)),
            share(one.correct_of_located), share(one.pattern_correct), number(one.detected_median_s),
            number(one.detected_p95_s), number(one.detected_median_iterations), number(one.detected_p95_iterations),
            str(one.extra_alarms),
        ))  # fmt: skip
    return lines


def share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


HEADINGS = ("", "n", "correct", "ambiguous", "wrong", "missed", "of located", "pattern", "s median", "s p95",
            "it. median", "it. p95", "extra")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=204, help="injections on the simulator")
    parser.add_argument("--first", type=int, default=0, help="number of the first injection; for runs in pieces")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--what", action="append", choices=WHATS, help="only these injections; repeatable")
    parser.add_argument("--healthy-seeds", type=int, default=2, help="healthy runs of every setting; 0 for none")
    parser.add_argument("--live", action="store_true", help="on a live fabric (root) instead of the simulator")
    parser.add_argument("--kind", choices=[kind.value for kind in KINDS], default="rail-only", help="live fabric")
    parser.add_argument("--guards", choices=["on", "off"], default="off", help="live: BFD and local repair")
    parser.add_argument("--cost", type=int, metavar="ROUNDS", help="live: what telemetry costs, instead of injections")
    parser.add_argument("--minutes", type=float, help="live: healthy minutes, for false alarms, instead of injections")
    parser.add_argument("--append", metavar="FILE", help="add the trials to this file and sum up all in it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    began_s = time.monotonic()
    if options.minutes:
        live_false_alarms(options.minutes, options.seed)
        return
    if options.cost:
        costs = cost(options.cost, options.seed)
        for name, value in costs.items():
            print(f"{name}: {value:.4f}")
        if options.json:
            print(json.dumps(costs))
        return
    made: Iterable[Trial]
    if options.live:
        made = live_trials(options.first, options.count, options.seed, FabricKind(options.kind), options.guards == "on")
    else:
        made = simulated_trials(options.first, options.count, options.seed, tuple(options.what or WHATS))
    trials = []
    for one in made:
        trials.append(one)
        if options.live or one.result in ("wrong", "missed") or one.extra:
            tell(one)
        if options.append:
            with open(options.append, "a") as file:
                file.write(json.dumps(asdict(one)) + "\n")
    if options.append:
        trials = stored(options.append)
    for key in ("what", "fabric", "traffic", "background", "expected_pattern"):
        print(table((key, *HEADINGS[1:]), rows(trials, key)))
    alarms = false_alarms(options.healthy_seeds) if options.healthy_seeds and not options.live else {}
    for name, found in alarms.items():
        print(f"healthy, {name}: {found['alarms']} alarms in {found['hours']:.2f} h")
    took_s = time.monotonic() - began_s
    print(f"a framework's time-out is {FRAMEWORK_TIMEOUT_S:g} s (U); took {took_s:.0f} s")
    if options.json:
        where = "live" if options.live else "simulated"
        result = {where: score(trials).to_dict(), "guards": sorted({one.guards for one in trials}), "healthy": alarms,
                  "framework_timeout_s": FRAMEWORK_TIMEOUT_S}  # fmt: skip
        print(json.dumps(result))


if __name__ == "__main__":
    main()
