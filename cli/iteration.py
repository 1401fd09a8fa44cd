"""``railbed iteration``: what one training iteration of a model sends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from cli.files import check_matrix, matrix_option, write_json_file, write_matrix
from cli.output import json_option, print_json, table
from workloads.algorithms import BULK, FORMS
from workloads.expert_load import PATTERNS, UNIFORM
from workloads.training import Plan

_HELP = {
    "tp": "Tensor parallelism.",
    "pp": "Pipeline stages.",
    "dp": "Data-parallel copies.",
    "ep": "Expert parallelism; divides DP.",
    "micro_batch": "Sequences in a micro-batch.",
    "micro_batches": "Micro-batches of each copy.",
    "sequence_parallel": "Cut activations along the sequence too.",
    "chunks": "Parts of a stage, to interleave the pipeline.",
    "zero": "ZeRO stage, 0 to 3.",
    "order": "Which neighbours come first when ranks are numbered.",
    "buckets": "Buckets of gradients per chunk.",
    "recompute": "Run every forward pass again before its backward pass.",
    "value_bytes": "Bytes of a parameter or activation.",
    "gradient_bytes": "Bytes of a gradient.",
    "gpu_tflops": "Peak of a GPU, TFLOP/s.",
    "utilisation": "Share of the peak that matrix products reach.",
    "tp_algorithm": "All-reduce of tensor parallelism.",
    "dp_algorithm": "All-reduce of data parallelism.",
    "ep_algorithm": "All-to-all of experts.",
}
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _plan_options(function: _Function) -> _Function:
    """An option for every field of the plan."""
    for field in reversed(fields(Plan)):
        name = f"--{field.name.replace('_', '-')}"
        kind: dict[str, Any] = {"is_flag": True} if field.default is False else {"show_default": True}
        function = click.option(name, field.name, default=field.default, help=_HELP[field.name], **kind)(function)
    return function


@click.command("iteration")
@click.argument("model")
@_plan_options
@click.option("--gpus", type=click.IntRange(min=1), help="GPUs of the fabric.  [default: TP x PP x DP]")
@click.option("--domain-size", default=8, show_default=True, type=click.IntRange(min=1), help="GPUs of an HB domain.")
@click.option("--load", type=click.Choice(list(PATTERNS)), default=UNIFORM, show_default=True, help="Load of experts.")
@click.option("--form", type=click.Choice(FORMS), default=BULK, show_default=True, help="Form of the collectives.")
@click.option("--seed", default=0, show_default=True, help="Seed of the load.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the schedule to this JSON file."
)
@matrix_option
@json_option
def command(
    model: str,
    gpus: int | None,
    domain_size: int,
    load: str,
    form: str,
    seed: int,
    output: Path | None,
    matrix: Path | None,
    as_json: bool,
    **plan_fields: Any,
) -> None:
    """What one training iteration of MODEL sends, by kind of parallelism and by the way it takes.

    MODEL is a preset, such as gpt3-175b, llama3-70b or mixtral-8x7b.
    """
    from workloads.expert_load import ExpertLoad
    from workloads.models import find_model
    from workloads.operations_file import operations_to_dict
    from workloads.traffic import active_share, ways
    from workloads.training import training_iteration

    check_matrix(matrix)
    plan = Plan(**plan_fields)
    made = training_iteration(
        find_model(model),
        plan,
        ranks=gpus or plan.ranks,
        domain_size=domain_size,
        load=ExpertLoad(load, seed),
        form=form,
        seed=seed,
    )
    if output is not None:
        write_json_file(output, operations_to_dict(made))
    if matrix is not None:
        write_matrix(matrix, made, domain_size)
    pairs = made.bytes_by_pair()
    taken = ways(pairs, domain_size)
    talking = active_share(pairs, made.ranks) if made.ranks > 1 else 0.0
    if as_json:
        totals = [vars(total) for total in made.totals()]
        print_json({
            "name": made.name, "ranks": made.ranks, "operations": len(made.operations),
            "transfers": made.transfer_count, "totals": totals, "in_domain_bytes": taken.in_domain,
            "on_rail_bytes": taken.on_rail, "across_rails_bytes": taken.across_rails, "active_pairs_share": talking,
            "output": output, "matrix": matrix,
        })  # fmt: skip
        return
    click.echo(f"{made.name}: {made.ranks} GPUs, {len(made.operations)} operations, {made.transfer_count} transfers\n")
    rows = [
        (total.family, total.collective, total.calls, f"{total.size_bytes / 1e9:.3f}", f"{total.sent_bytes / 1e9:.3f}")
        for total in made.totals()
    ]
    click.echo(table(("GROUP", "COLLECTIVE", "CALLS", "SIZE PER GROUP (GB)", "SENT BY ALL (GB)"), rows))
    click.echo(
        f"\nNVLink {taken.in_domain / 1e9:.3f} GB, on a rail {taken.on_rail / 1e9:.3f} GB, across rails "
        f"{taken.across_rails / 1e9:.3f} GB; {talking:.2%} of all pairs talk"
    )
    for what, path in (("schedule", output), ("matrix", matrix)):
        if path is not None:
            click.echo(f"{what}: {path}")
