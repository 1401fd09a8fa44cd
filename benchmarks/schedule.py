"""How fast and in how much memory the transfers of a training iteration are made from its operations.

``python benchmarks/schedule.py [--transfers 1000000] [--json]``. Each form runs in a process of its own, which streams
the transfers and then makes a whole checked schedule of them. Last, the size of an iteration of 32,768 GPUs.
"""

from __future__ import annotations

import argparse
import json
import pickle
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from workloads.algorithms import FORMS
from workloads.models import find_model
from workloads.operations import OperationSchedule
from workloads.training import Plan, training_iteration

PLAN = Plan(tp=8, pp=2, dp=16, sequence_parallel=True, zero=1)
"""256 GPUs; the micro-batches are as many as the wanted number of transfers needs."""


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def iteration(transfers: int, form: str) -> OperationSchedule:
    """The smallest iteration of at least so many transfers."""
    model = find_model("gpt3-13b")
    micro_batches = 1
    while True:
        plan = Plan(**{**vars(PLAN), "micro_batches": micro_batches})
        made = training_iteration(model, plan, ranks=plan.ranks, domain_size=8, form=form)
        if made.transfer_count >= transfers:
            return made
        micro_batches += 1


def measure(transfers: int, form: str) -> dict[str, Any]:
    made = iteration(transfers, form)
    before_mb = peak_mb()
    start = time.perf_counter()
    streamed = sum(1 for _ in made.expand())
    stream_s = time.perf_counter() - start
    stream_mb = peak_mb()
    start = time.perf_counter()
    whole = made.to_schedule()
    whole_s = time.perf_counter() - start
    return {
        "form": form, "operations": len(made.operations), "transfers": len(whole.transfers), "items": streamed,
        "stream_s": round(stream_s, 2), "whole_s": round(whole_s, 2), "start_mb": round(before_mb),
        "stream_mb": round(stream_mb), "peak_mb": round(peak_mb()),
    }  # fmt: skip


def large() -> dict[str, Any]:
    start = time.perf_counter()
    plan = Plan(tp=8, pp=8, dp=512, micro_batches=16, sequence_parallel=True)
    made = training_iteration(find_model("gpt3-175b"), plan, ranks=plan.ranks, domain_size=8)
    built_s = time.perf_counter() - start
    start = time.perf_counter()
    pairs = len(made.bytes_by_pair())
    return {
        "gpus": plan.ranks, "operations": len(made.operations), "transfers": made.transfer_count,
        "object_kb": round(len(pickle.dumps(made)) / 1000), "build_s": round(built_s, 3), "pairs": pairs,
        "pairs_s": round(time.perf_counter() - start, 3),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transfers", type=int, default=1_000_000, help="transfers to make (default 1,000,000)")
    parser.add_argument("--form", choices=FORMS, help="measure one form in this process")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on the last line")
    options = parser.parse_args()
    if options.form:
        print(json.dumps(measure(options.transfers, options.form)))
        return
    result: dict[str, Any] = {"gpus_32768": large()}
    print("form      operations   transfers  streamed (s)  whole, checked (s)  peak (MB)")
    for form in FORMS:
        command = [sys.executable, __file__, "--transfers", str(options.transfers), "--form", form]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        row = result[form] = json.loads(done.stdout)
        print(
            f"{form:<9} {row['operations']:>10} {row['transfers']:>11,} {row['stream_s']:>13} {row['whole_s']:>19} "
            f"{row['peak_mb']:>10}"
        )
    big = result["gpus_32768"]
    print(
        f"\n{big['gpus']:,} GPUs: {big['transfers']:,} transfers as {big['operations']} operations "
        f"({big['object_kb']} kB) in {big['build_s']} s; bytes of {big['pairs']:,} pairs in {big['pairs_s']} s"
    )
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
