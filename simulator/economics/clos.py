"""The folded Clos: how many switches of which size join a number of endpoints, in as few tiers as the radix allows.

A switch of ``radix`` ports is enough for up to ``radix`` endpoints. For more, the endpoints fill leaves of ``d`` ports
down and ``u`` up, one leaf after the other, and each of the ``u`` uplinks of a leaf leads to a plane of its own, which
joins the leaves as if they were endpoints: by one switch, or by a folded Clos again.

The last leaf may be part full. Its uplinks then lead to the first planes only, and the network stays non-blocking at
1:1: add to any set of connections as many imaginary ones from the part-full leaf to itself as it lacks uplinks. Every
leaf then has ``u`` connections each way, so ``u`` planes are enough to carry them without conflict (König); name the
planes so that the imaginary connections lie on the last ones.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from simulator.economics.errors import BillError

NON_BLOCKING = Fraction(1)


@dataclass(frozen=True, order=True)
class Shape:
    """The ports that one switch of a folded Clos uses towards the endpoints and away from them."""

    down_ports: int
    up_ports: int

    @property
    def ports(self) -> int:
        """Ports used in all."""
        return self.down_ports + self.up_ports


Tier = Counter[Shape]
"""The switches of one tier: how many of each shape."""


def folded_clos(endpoints: int, radix: int, oversubscription: Fraction = NON_BLOCKING) -> list[Tier]:
    """The tiers that join ``endpoints``, the one next to them first; ``oversubscription`` is that of the leaves.

    Switches are counted by the ports they use; :func:`boxes` puts several small ones into one box. A plane that the
    part-full leaf does not reach may do with one tier less than the others. Raises BillError if ``radix`` is too small.
    """
    if endpoints <= radix:
        return [Counter({Shape(endpoints, 0): 1})]
    down = math.floor(radix * oversubscription / (1 + oversubscription))
    if down < 1 or radix < 4:
        raise BillError(
            f"switch_ports is {radix}: too few for {endpoints} endpoints at {float(oversubscription):g}:1 "
            "oversubscription; use larger switches"
        )
    full, rest = divmod(endpoints, down)
    rest_up = math.ceil(rest / oversubscription)
    # A lone full leaf has no use for uplinks that no other leaf can answer.
    up = math.ceil(down / oversubscription) if full > 1 else rest_up
    leaves: Tier = Counter({Shape(down, up): full})
    if rest:
        leaves[Shape(rest, rest_up)] += 1
    tiers = [leaves]
    for planes, joined in ((rest_up, full + 1), (up - rest_up, full)):
        if planes:
            add_tiers(tiers, folded_clos(joined, radix), planes, first=1)
    return tiers


def add_tiers(tiers: list[Tier], more: list[Tier], copies: int, first: int = 0) -> None:
    """Add ``copies`` of the tiers ``more`` to ``tiers``, beginning with the tier number ``first``."""
    for index, tier in enumerate(more, first):
        if index == len(tiers):
            tiers.append(Counter())
        for shape, count in tier.items():
            tiers[index][shape] += count * copies


def boxes(tier: Tier, radix: int) -> int:
    """Switches of ``radix`` ports to buy for a tier, when those of the same shape share a box while ports are free."""
    return sum(math.ceil(count / (radix // shape.ports)) for shape, count in tier.items())
