"""R1 and R2: what rail-only saves in switches, optics, money and watts, from the bills of materials."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.reference.row import Expected, Mark, Reference, ReferenceRow, Told, exactly
from simulator.economics.bill import Bill, Comparison, compare, less, less_at_share
from simulator.economics.price_book import PriceBook, default_price_book
from topologies.builders import preset_spec
from topologies.model import FabricKind

GPUS = (32_768, 65_536)
RADIXES = (64, 128, 256)
LARGE_DOMAIN = 256
DGX_DOMAIN = 8
WHOLE_PERCENT = 0.5
"""The paper gives whole percents."""

COUNTS = {
    (32_768, 64): (2_560, 196_608, 1_536, 131_072),
    (32_768, 128): (1_280, 196_608, 256, 65_536),
    (32_768, 256): (384, 131_072, 128, 65_536),
    (65_536, 64): (5_120, 393_216, 3_072, 262_144),
    (65_536, 128): (2_560, 393_216, 1_536, 262_144),
    (65_536, 256): (1_280, 393_216, 256, 131_072),
}
"""By GPUs and switch ports: switches and transceivers of rail-optimized, then of rail-only, worked out by hand from the
formulas of full tiers, (2t-1) N/P switches and 2 t N transceivers."""

DGX_SWITCHES_LESS = {64: 0.0, 128: 40.0, 256: 0.0}
SWITCH_SHARE_OF_COST, SWITCH_SHARE_OF_POWER = 0.75, 0.61
"""Shares of switches in the bill and in the watts at which the counts give both ends of the paper's ranges."""


def _comparisons(rails: int, gpus: Sequence[int], book: PriceBook) -> list[Comparison]:
    template = preset_spec("dgx-h100", FabricKind.RAIL_OPTIMIZED, 1)
    kinds = (FabricKind.RAIL_ONLY,)
    return compare(kinds, FabricKind.RAIL_OPTIMIZED, template, book, gpus, (rails,), RADIXES)


def _percent(value: float, baseline: float) -> float:
    return 100 * (less(value, baseline) or 0.0)


def _where(case: Comparison) -> str:
    return f"{case.gpus:,} GPUs, K = {case.rails}, {case.radix} ports"


def _counts(experiment: str, cases: Sequence[Comparison]) -> list[ReferenceRow]:
    rows = []
    for case in cases:
        optimized, rail_only = case.baseline.materials, case.bills[0].materials
        found = (optimized.switches, optimized.transceivers, rail_only.switches, rail_only.transceivers)
        names = ("rail-optimized", "rail-optimized", "rail-only", "rail-only")
        for name, unit, value, expected in zip(
            names, ("switches", "transceivers") * 2, found, COUNTS[case.gpus, case.radix], strict=True
        ):
            rows.append(ReferenceRow(experiment, f"{_where(case)}: {name}", unit, value, exactly(expected)))
    return rows


def _ends(
    experiment: str, what: str, savings: Sequence[float], published: tuple[float, float], note: str
) -> list[ReferenceRow]:
    """The smallest and the largest saving beside the ends of the published range."""
    return [
        ReferenceRow(experiment, f"{what}: {name} of the six cases", "%", found,
                     Expected(end, end, Mark.PUBLISHED, WHOLE_PERCENT), note)
        for name, found, end in zip(("smallest", "largest"), (min(savings), max(savings)), published, strict=True)
    ]  # fmt: skip


def _at_share(experiment: str, what: str, cases: Sequence[Comparison], share: float, published: tuple[float, float]
              ) -> list[ReferenceRow]:  # fmt: skip
    savings = [100 * (less_at_share(case.bills[0].materials, case.baseline.materials, share) or 0.0) for case in cases]
    return _ends(experiment, f"{what} with switches at {share:.0%} of the baseline", savings, published, "")


def _money(case: Comparison, bill: Bill) -> float:
    return _percent(bill.cost.total, case.baseline.cost.total)


def cost(told: Told) -> list[ReferenceRow]:
    """Counts of every row of the table, the cost's range, and the same for domains of 8."""
    told("bills of materials")
    book = default_price_book()
    cases = _comparisons(LARGE_DOMAIN, GPUS, book)
    rows = _counts("R1", cases)
    priced = (
        "the built-in price book's ratio of switch to optics was chosen so that this share holds; prices are assumed"
    )
    rows += _at_share("R1", "cost saved", cases, SWITCH_SHARE_OF_COST, (38, 77))
    rows += _ends("R1", "cost saved at the built-in prices", [_money(case, case.bills[0]) for case in cases], (38, 77),
                  priced)  # fmt: skip
    for case in _comparisons(DGX_DOMAIN, GPUS[:1], book):
        bill = case.bills[0]
        saved = _percent(bill.materials.switches, case.baseline.materials.switches)
        tiers = f"{len(bill.materials.tiers)} tiers for {len(case.baseline.materials.tiers)}"
        expected = exactly(DGX_SWITCHES_LESS[case.radix])
        rows.append(ReferenceRow("R1", f"{_where(case)}: switches saved", "%", saved, expected, tiers))
        rows.append(ReferenceRow("R1", f"{_where(case)}: cost saved", "%", _money(case, bill), None, tiers))
    return rows


def power(told: Told) -> list[ReferenceRow]:
    """The range of the saving in watts."""
    told("power")
    cases = _comparisons(LARGE_DOMAIN, GPUS, default_price_book())
    savings = [_percent(case.bills[0].power_w.total, case.baseline.power_w.total) for case in cases]
    note = "watts of a switch port are assumed at about 1.9 times a transceiver's"
    rows = _at_share("R2", "power saved", cases, SWITCH_SHARE_OF_POWER, (37, 75))
    return rows + _ends("R2", "power saved at the built-in watts", savings, (37, 75), note)


R1 = Reference(
    "R1",
    "The network of a rail-only fabric costs 38 % to 77 % less than that of a rail-optimized one.",
    "Bills of materials of both fabrics, full bisection, NIC links included; money by the price book.",
    cost,
)
R2 = Reference(
    "R2",
    "It draws 37 % to 75 % less power.",
    "The same bills of materials; watts by the price book.",
    power,
)
