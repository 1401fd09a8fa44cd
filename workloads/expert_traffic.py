"""The all-to-all that sends tokens to their experts: uneven as the load of the experts is."""

from __future__ import annotations

from topologies.model import Fabric
from workloads.algorithms import ALL_TO_ALL, BULK, find_algorithm
from workloads.collectives import all_ranks, by_domain, uneven_all_to_all
from workloads.errors import PlanError
from workloads.expert_load import ExpertLoad
from workloads.schedule import Schedule


def expert_all_to_all(
    fabric: Fabric,
    size_bytes: int,
    *,
    experts: int,
    top_k: int = 1,
    load: ExpertLoad | None = None,
    step: int = 0,
    within_domains: bool = True,
    algorithm: str | None = None,
    form: str = BULK,
    name: str = "",
    seed: int = 0,
) -> Schedule:
    """Every rank sends tokens of ``size_bytes`` to the ranks of their experts, by the shares of ``load`` in ``step``.

    Rank r of n holds the r-th ``experts / n`` experts. Without ``within_domains`` all tokens leave their domain: the
    shares of the ranks in other domains are scaled up to add up to 1. Raises PlanError for experts that can't be spread
    over the ranks, and CollectiveError as :func:`workloads.collectives.uneven_all_to_all` does.
    """
    n = len(fabric.gpus)
    if experts % n:
        raise PlanError(f"{experts} experts are not divisible by {n} ranks; use a multiple of {n}")
    shares = (load or ExpertLoad()).rank_shares(experts, n, top_k, step)
    groups, local = all_ranks(fabric), 1
    if find_algorithm(ALL_TO_ALL, algorithm)[1].needs_local:
        groups, local = by_domain(fabric, groups)
    domain_of = [gpu.domain for gpu in fabric.gpus]
    splits = []
    for src in range(n):
        wanted = [
            share if within_domains or domain_of[dst] != domain_of[src] else 0.0 for dst, share in enumerate(shares)
        ]
        total = sum(wanted)
        if total <= 0:
            raise PlanError(f"rank {src} has no expert to send to in another domain; use another load or more domains")
        splits.append([round(size_bytes * share / total) for share in wanted])
    return uneven_all_to_all(
        groups, splits, n, algorithm=algorithm, form=form, local=local, name=name or ALL_TO_ALL, seed=seed
    )
