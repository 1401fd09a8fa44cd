"""The figures of `railbed cost`: nothing is cut, no text covers another, and what they say is in the bills."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from experiments.figures.cost import cost_figure, sensitivity_figure
from experiments.figures.style import figure_bytes
from simulator.economics.bill import Comparison, compare
from simulator.economics.price_book import default_price_book
from tests.experiments.test_figures import assert_nothing_is_cut, drawn
from topologies.model import FabricKind, FabricSpec

BOOK = default_price_book()


def cases(gpus: tuple[int, ...] = (32_768,), rails: tuple[int, ...] = (8, 256)) -> list[Comparison]:
    template = FabricSpec(FabricKind.RAIL_ONLY, 1, 1)
    return compare(list(FabricKind), FabricKind.RAIL_OPTIMIZED, template, BOOK, gpus, rails, (64, 128, 256))


def said(figure: Figure) -> list[str]:
    return [text for text, _ in drawn(figure)[0]]


@pytest.mark.parametrize("comparisons", [cases(), cases(gpus=(32_768, 65_536)), cases(rails=(256,))])
def test_nothing_is_cut_and_no_text_covers_another(comparisons: list[Comparison]) -> None:
    for figure in (cost_figure(comparisons, "USD"), sensitivity_figure(comparisons, BOOK.prices(400))):
        assert_nothing_is_cut(figure)
        boxes, _, _ = drawn(figure)
        for index, (text, box) in enumerate(boxes):
            for other_text, other in boxes[index + 1 :]:
                assert not box.overlaps(other), f"{text!r} covers {other_text!r}"


def test_the_bars_say_what_is_saved_at_both_domain_sizes() -> None:
    texts = said(cost_figure(cases(), "USD"))
    assert [text for text in texts if text.startswith("\u2212")] == [
        "\u221238%", "\u221238%", "\u221277%", "\u221262%"
    ]  # fmt: skip
    assert texts.count("same") == 2 + 6
    assert "cost of the network (million USD)" in texts


def test_cases_with_the_same_line_share_it_and_the_price_book_is_marked() -> None:
    figure = sensitivity_figure(cases(), BOOK.prices(400))
    texts = said(figure)
    assert "K = 8, 64 ports\nK = 8, 256 ports" in texts
    assert "K = 8, 128 ports\nK = 256, 64 ports" in texts
    assert "price book, 3.6" in texts
    assert len(figure.axes[0].get_lines()) == 4 + 1


def test_equal_figures_are_equal_bytes() -> None:
    assert figure_bytes(cost_figure(cases(), "USD"), "svg") == figure_bytes(cost_figure(cases(), "USD"), "svg")
