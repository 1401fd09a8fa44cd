"""Predicted against emulated completion time on 16 GPUs: every collective and algorithm, healthy and with failures.

``python benchmarks/prediction.py [--kind KIND] [--condition CONDITION] [--engine ENGINE] [--store FILE] [--seconds N]
[--repeats N] [--over] [--figure FILE] [--json]`` (root). With ``--store`` the results are added to a file, and cases
that it has are not run again, so that a long series can be measured in pieces of ``--seconds``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from emulator import manager
from emulator.engines import Engine, engine_for, start_delay_s
from experiments.figures.prediction import points_figure
from experiments.figures.style import figure_bytes
from experiments.prediction import (
    CONDITIONS,
    KINDS,
    SEED,
    Case,
    Comparison,
    cases,
    compared,
    from_json,
    in_words,
    made,
    markdown,
    medians,
    points,
    predicted,
    prepare,
    to_json,
)
from topologies.model import fabric_kind
from topologies.scale import default_scale

NAME = "prediction"


def stored(path: Path | None) -> list[Comparison]:
    return from_json(path.read_text()) if path is not None and path.exists() else []


def runs_of(case: Case, engine: Engine | None, done: list[Comparison]) -> int:
    fabric, schedule, _ = made(case)
    chosen = engine or engine_for(schedule, fabric, default_scale(fabric))
    return sum((one.case, one.engine) == (case, chosen.value) for one in done)


def measured(running: manager.RunningFabric, case: Case, engine: Engine | None) -> Comparison:
    fabric, schedule, _ = made(case)
    chosen = engine or engine_for(schedule, fabric, default_scale(fabric))
    prepared = prepare(case, start_delay_s(chosen))
    expected = predicted(prepared, start_delay_s(chosen))
    record = running.run(prepared.schedule, prepared.failures, SEED, engine=chosen)
    return compared(prepared, chosen.value, expected, record)


def line(found: Comparison) -> str:
    case = found.case
    result = "failed: " + found.reason
    if found.measured_s is not None and found.difference is not None:
        result = f"{found.measured_s:7.2f} s {found.difference:+7.1%}"
    return f"{case.kind.value:<15} {case.text:<48} {case.condition:<17} {found.predicted_s:7.2f} s {result}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", action="append", help="rail-only, rail-optimized or spine-leaf (default: all)")
    parser.add_argument(
        "--condition", action="append", choices=CONDITIONS, help="healthy, or what fails (default: all)"
    )
    parser.add_argument(
        "--engine", choices=[engine.value for engine in Engine], help="default: what suits the schedule"
    )
    parser.add_argument("--repeats", type=int, default=1, help="runs of each case (default 1); their median counts")
    parser.add_argument("--over", action="store_true", help="only cases in the file whose median misses the prediction")
    parser.add_argument("--store", type=Path, help="file to add the results to; cases in it are not run again")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no case after this many seconds")
    parser.add_argument("--figure", type=Path, help="write the figure as this PNG or SVG file")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on the last line")
    parsed = parser.parse_args()
    kinds = [fabric_kind(kind) for kind in parsed.kind] if parsed.kind else KINDS
    began_s = time.monotonic()
    done = stored(parsed.store)
    wanted = cases(kinds, parsed.condition or CONDITIONS)
    if parsed.over:
        over = {one.case for one in medians(done) if not one.good}
        wanted = [case for case in wanted if case in over]
    engine = None if parsed.engine is None else Engine(parsed.engine)
    for kind in kinds:
        todo = [case for case in wanted if case.kind is kind and runs_of(case, engine, done) < parsed.repeats]
        if not todo or time.monotonic() - began_s > parsed.seconds:
            continue
        running = manager.up(made(todo[0])[0].spec, name=NAME, seed=SEED)
        try:
            for case in todo:
                while runs_of(case, engine, done) < parsed.repeats and time.monotonic() - began_s <= parsed.seconds:
                    done.append(measured(running, case, engine))
                    print(line(done[-1]), flush=True)
                    if parsed.store is not None:
                        parsed.store.write_text(to_json(done))
        finally:
            manager.down(NAME)
    asked = medians([one for one in done if one.case in wanted])
    print(f"\n{markdown(asked)}\n{in_words(asked)}")
    if parsed.figure is not None:
        parsed.figure.write_bytes(figure_bytes(points_figure(points(asked)), parsed.figure.suffix.lstrip(".")))
    left = sum(runs_of(case, engine, done) < parsed.repeats for case in wanted)
    if left:
        print(f"{left} cases are left")
    if parsed.json:
        misses = [abs(one.difference) for one in asked if one.difference is not None]
        good = sum(one.good for one in asked)
        print(
            json.dumps(
                {"cases": len(asked), "left": left, "good": good, "largest_difference": max(misses, default=None)}
            )
        )


if __name__ == "__main__":
    main()
