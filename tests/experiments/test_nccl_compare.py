"""A run beside a log of nccl-tests, from arithmetic to the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cli.main import main
from experiments.errors import CannotCompareError
from experiments.figures.nccl_log import nccl_log_figure
from experiments.figures.style import figure_bytes
from experiments.nccl_compare import at_size, compare_with_log, log_curve
from tests.experiments.cases import made, small
from workloads.importers.nccl_tests import NcclTestsLog, Row, Timing

OUTCOMES = [outcome for _, _, outcome in made(small())]
MIB = 1 << 20


def log(collective: str = "all-reduce", ranks: int | None = 4) -> NcclTestsLog:
    rows = tuple(
        Row(size, size // 4, "float", "sum", -1, Timing(1.0, busbw, busbw, "0"), Timing(1.0, 999.0, 999.0, "0"))
        for size, busbw in ((0, 0.0), (64 * MIB, 100.0), (1024 * MIB, 200.0))
    )
    return NcclTestsLog(rows, ranks, "the list of ranks", collective, None, 0)


def test_the_curve_is_out_of_place_without_size_0_and_straight_over_the_logarithm() -> None:
    curve = log_curve(log())
    assert curve == ((64 * MIB, 100.0), (1024 * MIB, 200.0))
    assert at_size(curve, 64 * MIB) == 100.0
    assert at_size(curve, 256 * MIB) == pytest.approx(150.0)
    assert at_size(curve, 1024 * MIB) == 200.0
    assert at_size(curve, 32 * MIB) is None
    assert at_size(curve, 2048 * MIB) is None


def test_a_run_is_put_beside_the_log_in_the_same_unit() -> None:
    compared = compare_with_log(OUTCOMES, log(), "a.log")
    assert {one.collective for one in compared.sizes} == {"all-reduce"}
    assert len(compared.sizes) == 2, "healthy runs only, one on each fabric"
    for one in compared.sizes:
        outcome = next(o for o in OUTCOMES if (o.fabric, o.collective) == (one.fabric, one.collective))
        assert outcome.busbw_gbps is not None
        assert one.run_gbytes_per_s == pytest.approx(outcome.busbw_gbps / 8)
        assert one.expected_gbytes_per_s == pytest.approx(one.run_gbytes_per_s), "the simulator is the fluid model"
        assert one.log_gbytes_per_s == pytest.approx(150.0)
        assert one.ratio == pytest.approx(outcome.busbw_gbps / 8 / 150)
    assert not any("ranks" in note and "a.log" in note for note in compared.notes)


def test_what_a_reader_must_know_is_said() -> None:
    notes = " ".join(compare_with_log(OUTCOMES, log(ranks=16), "a.log").notes)
    assert "a.log is of 16 ranks, the runs of 4" in notes
    unknown = compare_with_log(OUTCOMES, log(""), "a.log")
    assert "does not tell which of these collectives" in " ".join(unknown.notes)
    assert "2 of 4 sizes" not in " ".join(unknown.notes)
    tiny = [replace(outcome, size_bytes=MIB) for outcome in OUTCOMES]
    assert "2 of 2 sizes are outside the sizes of a.log" in " ".join(compare_with_log(tiny, log(), "a.log").notes)


def test_a_run_that_was_not_made_in_full_has_no_bandwidth() -> None:
    lost = [replace(outcome, busbw_gbps=None, duration_s=None) for outcome in OUTCOMES]
    compared = compare_with_log(lost, log(), "a.log")
    assert {(one.run_gbytes_per_s, one.ratio) for one in compared.sizes} == {(None, None)}
    assert figure_bytes(nccl_log_figure(compared, "a.log"), "svg").startswith(b"<?xml")


@pytest.mark.parametrize("collective", ["reduce or broadcast", "all-gather"])
def test_another_collective_is_refused(collective: str) -> None:
    with pytest.raises(CannotCompareError, match=r"a\.log is of .*, but the result holds all-reduce, all-to-all"):
        compare_with_log(OUTCOMES, log(collective), "a.log")


def test_a_log_of_parts_fits_gathers_scatters_and_all_to_alls() -> None:
    compared = compare_with_log(OUTCOMES, log("gather, scatter or all-to-all"), "a.log")
    assert {one.collective for one in compared.sizes} == {"all-to-all"}


LOG = """\
#  Rank  0 Pid 1 on a device 0
#  Rank  1 Pid 2 on a device 1
#  Rank  2 Pid 3 on a device 2
#  Rank  3 Pid 4 on a device 3
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
    67108864      16777216     float     sum      -1   1006.6   66.67  100.00      0   1006.6   66.67  100.00      0
  1073741824     268435456     float     sum      -1   8053.1  133.33  200.00      0   8053.1  133.33  200.00      0
"""


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    scenario, measured, results = tmp_path / "s.yaml", tmp_path / "a.log", tmp_path / "results"
    measured.write_text(LOG)
    scenario.write_text(
        "name: x\nfabrics: [{kind: rail-only, preset: dgx-h100, domains: 2, rails: 2}]\n"
        "workload: [{collective: all-reduce, size: 256MiB}]\nbackend: simulator\n"
    )
    assert run(capsys, "run", scenario, "--results", results)[0] == 0
    code, out, err = run(capsys, "compare", "latest", measured, "--results", results)
    assert (code, err) == (0, "")
    assert "rail-only" in out.splitlines()[1]
    assert " 150 " in out.splitlines()[1]
    figure = next(results.glob("*/figures/against-a.svg"))
    assert f"figure: {figure}" in out
    found = json.loads(run(capsys, "compare", "latest", measured, "--results", results, "--json")[1])
    assert found["sizes"][0]["log_gbytes_per_s"] == pytest.approx(150.0)
    for words, code, sentence in (
        (("latest", scenario), 1, "is of no kind that can be imported"),
        (("latest", measured, "--figure", "x.txt"), 2, "must end in .svg, .png or .pdf"),
        (("other", measured), 2, "there is no result 'other'"),
        (("latest", tmp_path / "none"), 2, "there is no result"),
    ):
        found_code, _, err = run(capsys, "compare", *words, "--results", results)
        assert sentence in err
        assert found_code == code
