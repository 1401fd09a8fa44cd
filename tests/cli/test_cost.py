"""`railbed cost`, from the words on the command line to what is printed and written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.typed import typed


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    return typed(capsys, "cost", *words)


def bills(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    code, out, err = run(capsys, "--json", *words)
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert isinstance(printed, dict)
    return printed


def test_without_options_domains_of_8_stand_beside_domains_of_256(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert (
        "32,768 GPUs, K = 8: rail-only below rail-optimized at 64, 128, 256 ports by: switches 0.0 %, 40.0 %, 0.0 %; "
        "cost 0.0 %, 38.3 %, 0.0 %; power 0.0 %, 37.4 %, 0.0 %"
    ) in out
    assert (
        "32,768 GPUs, K = 256: rail-only below rail-optimized at 64, 128, 256 ports by: "
        "switches 40.0 %, 80.0 %, 66.7 %; cost 38.3 %, 76.7 %, 62.2 %; power 37.4 %, 74.8 %, 59.8 %"
    ) in out
    assert "K = 8 at 128 ports (2 for 3), K = 256 at 64 ports (2 for 3)" in out
    assert "4 of 5 figures are assumed" in out
    assert sum(line.startswith("32,768  ") for line in out.splitlines()) == 2 * 3 * 4


def test_json_has_the_counts_by_tier_and_the_sources_of_the_prices(capsys: pytest.CaptureFixture[str]) -> None:
    printed = bills(capsys, "rail-only", "ideal", "--gpus", "65536", "--rails", "256", "--switch-ports", "128")
    rail_only, ideal = printed["bills"]
    assert [tier["switches"] for tier in rail_only["tiers"]] == [1_024, 512]
    assert (rail_only["switches"], rail_only["transceivers"], rail_only["cables"]) == (1_536, 262_144, 131_072)
    assert rail_only["switches_less"] == pytest.approx(0.4)
    assert rail_only["cost"]["total"] == pytest.approx(1_536 * 128 * 900 + 262_144 * 230 + 131_072 * 40)
    assert (ideal["switches"], ideal["cost_less"]) == (0, None)
    assert printed["price_book"]["transceiver_power_w"] == {
        "value": 9,
        "source": "NVIDIA MMS4X00-NS400 product specification: 9 W at 400 Gbit/s",
    }
    assert printed["sensitivity"] is None


def test_preset_and_dual_homing_set_the_rate_of_a_port(capsys: pytest.CaptureFixture[str]) -> None:
    printed = bills(
        capsys, "rail-only", "--preset", "dgx-a100", "--uplinks", "2", "--gpus", "64", "--switch-ports", "8"
    )
    assert (printed["port_rate_gbps"], printed["bills"][0]["rails"]) == (100, 8)
    assert printed["bills"][0]["cables"] == 128


def test_sensitivity_holds_the_price_books_own_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--rails", "256", "--switch-ports", "64", "--sensitivity")
    rows = bills(capsys, *words)["sensitivity"]
    assert {row["fabric"] for row in rows} == {"rail-only"}
    own = next(row for row in rows if row["port_price_in_transceivers"] == pytest.approx(3.6))
    assert own["baseline_switch_share"] == pytest.approx(0.75)
    assert own["cost_less"] == pytest.approx(0.75 * 0.4 + 0.25 / 3)
    savings = [row["cost_less"] for row in rows]
    assert savings == sorted(savings)
    assert "3.6                        75.0 %" in run(capsys, *words)[1]


def test_another_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--baseline", "rail-only", "--rails", "256", "--switch-ports", "64")
    by_fabric = {bill["fabric"]: bill for bill in bills(capsys, *words)["bills"]}
    assert by_fabric["rail-optimized"]["switches_less"] == pytest.approx(1 - 2_560 / 1_536)
    assert "-66.7 %" in run(capsys, *words)[1]


def test_the_printed_price_book_is_used_once_edited(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, text, _ = run(capsys, "--print-prices")
    assert code == 0
    book = tmp_path / "mine.yaml"
    book.write_text(text.replace("value: 900", "value: 0").replace("USD", "EUR"))
    printed = bills(capsys, "rail-only", "--rails", "256", "--switch-ports", "64", "--prices", book)
    assert printed["price_book"]["currency"] == "EUR"
    assert printed["bills"][0]["cost"]["switches"] == 0
    assert printed["bills"][0]["cost_less"] == pytest.approx(1 / 3)
    assert "COST (million EUR)" in run(capsys, "--prices", book)[1]


def test_figures_are_written_where_there_is_something_to_draw(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, _ = run(capsys, "--figures", tmp_path / "new" / "figures")
    assert code == 0
    names = sorted(path.name for path in (tmp_path / "new" / "figures").iterdir())
    assert names == ["cost.png", "cost.svg", "sensitivity.png", "sensitivity.svg"]
    assert out.count("figure: ") == 4
    assert bills(capsys, "ideal", "--figures", tmp_path)["figures"] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rail-onyl",), "unknown fabric 'rail-onyl': did you mean 'rail-only'?"),
        (("--gpus", "100", "--rails", "8"), "100 GPUs are no whole number of domains of 8 GPUs"),
        (("--gpus", "0"), "0 is not in the range"),
        (("--switch-ports", "3"), "switch_ports is 3: too few"),
        (("--oversubscription", "0"), "oversubscription is 0.0; it must be a number above 0"),
        (("--oversubscription", "nan"), "oversubscription is nan; it must be a number above 0"),
        (("--uplinks", "3"), "uplinks is 3; a NIC has 1 uplink, or 2"),
        (("--preset", "dgx-h10"), "unknown preset 'dgx-h10': did you mean 'dgx-h100'?"),
        (("--baseline", "ideal"), "the ideal fabric has no network to compare with"),
        (("--prices", "none.yaml"), "'none.yaml' does not exist"),
    ],
)
def test_mistakes_end_in_one_sentence(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_wrong_price_book_and_a_folder_that_cannot_be_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    book = tmp_path / "mine.yaml"
    book.write_text("currency: USD\nrates: {200: 5}\n")
    code, out, err = run(capsys, "--prices", book)
    assert (code, out) == (2, "")
    assert err.startswith(f"railbed: {book}: rates.200: expected the keys switch_port_price, ")
    code, out, err = run(capsys, "--figures", book / "figures")
    assert (code, out) == (2, "")
    assert "cannot be written" in err


def test_it_starts_without_the_heavy_libraries() -> None:
    program = (
        "import sys\nfrom cli.main import run_words\nrun_words(['cost', '--json'])\n"
        "heavy = {'numpy', 'matplotlib', 'pydantic', 'rich', 'mininet', 'os_ken', 'scapy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
