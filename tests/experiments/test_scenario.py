from pathlib import Path

import pytest

from experiments.errors import ScenarioError
from experiments.scenario import Scenario, load_scenario, parse_scenario
from experiments.units import Moment, duration_text, parse_moment, parse_size_bytes, rate_text, size_text
from topologies.model import FabricKind

GOOD = """\
name: small
question: What?
fabrics:
  - {kind: rail-only, preset: dgx-h100, domains: 2, rails: 2}
  - {kind: rail_optimized, preset: DGX H100, domains: 2, rails: 2, oversubscription: 2}
scale: {time: 500}
workload:
  - {collective: all-reduce, size: 64MiB}
  - {collective: all-reduce, size: 1GB, group: rails}
  - {collective: all-to-all, size: 4096, name: shuffle}
failures:
  - {at: 40%, restore: 2.5s}
backend: simulator
seed: 7
"""


def edited(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def problems(text: str) -> list[tuple[int, str, str]]:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "s.yaml")
    assert caught.value.exit_code == 2
    for line, problem in zip(str(caught.value).splitlines(), caught.value.problems, strict=True):
        assert line.startswith(f"s.yaml:{problem.line}: " if problem.line else "s.yaml: ")
    return [(problem.line, problem.key, problem.text) for problem in caught.value.problems]


def test_a_good_scenario() -> None:
    scenario = parse_scenario(GOOD)
    fabrics = scenario.build_fabrics()
    assert list(fabrics) == ["rail-only", "rail-optimized"]
    assert fabrics["rail-optimized"].spec.oversubscription == 2
    assert fabrics["rail-only"].spec.nvlink_rate_mbps == 3_600_000
    assert [item.labels for item in scenario.workload] == [("all-reduce",), ("all-reduce per rail",), ("shuffle",)]
    assert scenario.failures[0].at == Moment(0.4, True)
    assert scenario.failures[0].restore == Moment(2.5, False)
    scale = scenario.scale_for(fabrics["rail-only"])
    assert (scale.rate, scale.time) == (20_000, 500)
    schedules = scenario.schedules_for("rail-only", fabrics["rail-only"])
    assert schedules == scenario.schedules_for("rail-optimized", fabrics["rail-optimized"])
    assert [len(schedule.phases()) for schedule in schedules] == [2, 2, 3]
    assert {schedule.seed for schedule in schedules} == {7}


def test_a_scenario_survives_its_own_yaml() -> None:
    scenario = parse_scenario(GOOD)
    assert parse_scenario(scenario.to_yaml()) == scenario
    without = parse_scenario(edited("failures:\n  - {at: 40%, restore: 2.5s}\n", ""))
    assert parse_scenario(without.to_yaml()) == without


def test_one_fabric_may_stand_alone() -> None:
    scenario = parse_scenario(
        "fabric: {kind: ideal, domains: 4, rails: 2}\nworkload: [{collective: all-to-all, size: 1MB}]"
    )
    assert scenario.fabrics[0].kind is FabricKind.IDEAL
    assert len(scenario.build_fabrics()["ideal"].gpus) == 8
    found = problems("fabric:\n  kind: ideal\n  domains: x\n  rails: 2\nworkload: [{collective: all-to-all, size: 1}]")
    assert found == [(3, "fabric.domains", "expected a whole number, found 'x'")]


@pytest.mark.parametrize(
    ("text", "line", "key", "words"),
    [
        (edited("seed: 7", "sede: 7"), 14, "sede", "unknown key: did you mean 'seed'?"),
        (edited("preset: dgx-h100, domains: 2", "preset: dgx-h100, domain: 2"), 4, "fabrics[0].domain", "'domains'?"),
        (edited("preset: dgx-h100", "preset: dgx-h10"), 4, "fabrics[0].preset", "did you mean 'dgx-h100'?"),
        (edited("kind: rail-only", "kind: rail-onyl"), 4, "fabrics[0].kind", "did you mean 'rail-only'?"),
        (edited("domains: 2, rails: 2}", "domains: 0, rails: 2}"), 4, "fabrics[0]", "domains is 0"),
        (edited("domains: 2, rails: 2}", "domains: two, rails: 2}"), 4, "fabrics[0].domains", "a whole number"),
        (edited("domains: 2, rails: 2}", "domains: 2.5, rails: 2}"), 4, "fabrics[0].domains", "a whole number"),
        (edited("domains: 2, rails: 2}", "domains: true, rails: 2}"), 4, "fabrics[0].domains", "a whole number"),
        (edited("oversubscription: 2", "oversubscription: many"), 5, "fabrics[1].oversubscription", "a number"),
        (edited("time: 500", "time: 0"), 6, "scale.time", "must be above 0"),
        (edited("time: 500", "rate: 1e7"), 6, "scale.rate", "expected a number"),
        (edited("time: 500", "rate: 1"), 4, "fabrics[0]", "the shaper holds"),
        (edited("{time: 500}", "fast"), 6, "scale", "a mapping of keys"),
        (edited("all-reduce, size: 64MiB", "all-redcue, size: 64MiB"), 8, "workload[0].collective", "'all-reduce'?"),
        (edited("64MiB", "64Mb2"), 8, "workload[0].size", "a size above 0"),
        (edited("64MiB", "64MiX"), 8, "workload[0].size", "unknown unit 'MiX'"),
        (edited("64MiB", "3"), 8, "workload[0]", "at least 4 bytes"),
        (edited("group: rails", "group: rail"), 9, "workload[1].group", "did you mean 'rails'?"),
        (edited("group: rails", "group: 5"), 9, "workload[1].group", "The groups are all, rails"),
        (edited(", name: shuffle", ", nmae: shuffle"), 10, "workload[2].nmae", "did you mean 'name'?"),
        (edited(", name: shuffle", ", name: all-reduce"), 10, "workload[2]", "occurs twice"),
        (edited("at: 40%", "at: 0.4"), 12, "failures[0].at", "like '40%'"),
        (edited("at: 40%, ", ""), 12, "failures[0].at", "this key is missing"),
        (edited("restore: 2.5s", "restore: 30%"), 12, "failures[0].restore", "restore must be later"),
        (edited("{at: 40%", "{link: d0r0-rail0, at: 40%"), 12, "failures[0].link", "'rail-optimized' has no link"),
        (edited("{at: 40%", "{link: d0r0-s0r0, at: 40%"), 12, "failures[0].link", "cannot fail"),
        (edited("backend: simulator", "backend: stimulator"), 13, "backend", "'emulator' or 'simulator'"),
        (edited("seed: 7", "seed: -1"), 14, "seed", "at least 0"),
        (edited("name: small", "name: ''"), 1, "name", "the text is empty"),
        (edited("name: small", "name: 5"), 1, "name", "expected a text"),
        (edited("seed: 7", "seed: 7\nseed: 8"), 15, "seed", "occurs twice (first on line 14)"),
        (edited("question: What?", "fabric: {kind: ideal, domains: 2, rails: 2}"), 2, "fabric", "not both"),
        ("fabrics: []\nworkload: [{collective: all-to-all, size: 1MB}]", 1, "fabrics", "the list is empty"),
        ("fabrics: 3\nworkload: [{collective: all-to-all, size: 1MB}]", 1, "fabrics", "expected a list"),
        ("fabric: {kind: ideal, domains: 2, rails: 2}", 1, "workload", "this key is missing"),
        ("- 1\n- 2\n", 1, "", "a mapping of keys"),
        ("a: [1, 2\n", 2, "", "this is no YAML"),
        ("a: !!python/object:os.system {}\n", 1, "", "this is no YAML"),
        ("", 0, "", "the file is empty"),
        ("# only a comment\n", 0, "", "the file is empty"),
    ],
)
def test_one_mistake_gives_one_sentence(text: str, line: int, key: str, words: str) -> None:
    if "rate: 1" in text:
        text = text.replace("backend: simulator", "backend: emulator")
    found = problems(text)
    assert [problem for problem in found if problem[:2] == (line, key) and words in problem[2]]
    # A mistake may be one on each of the two fabrics; a misspelt key is also a missing one.
    assert len(found) <= 2


def test_fabrics_of_unequal_size_cannot_be_compared() -> None:
    found = problems(edited("domains: 2, rails: 2}", "domains: 3, rails: 2}"))
    assert found == [(3, "fabrics", "the fabrics have 4, 6 GPUs; to carry the same flows they must have as many")]


def test_a_fabric_without_nics_has_no_link_to_choose() -> None:
    text = "fabric: {kind: ideal, domains: 2, rails: 2}\nworkload: [{collective: all-to-all, size: 1MB}]\n"
    assert "no NIC link" in problems(text + "failures: [{at: 10%}]")[0][2]


def test_all_mistakes_come_at_once_in_order_of_lines() -> None:
    found = problems(GOOD.replace("seed: 7", "seed: x").replace("dgx-h100", "dgx").replace("64MiB", "0"))
    assert [line for line, _, _ in found] == [4, 8, 14]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(GOOD)
    assert isinstance(load_scenario(good), Scenario)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, words in ((tmp_path / "goood.yaml", "did you mean"), (tmp_path / "no" / "x.yaml", "nor does the folder"),
                        (tmp_path, "this is a folder"), (binary, "not UTF-8")):  # fmt: skip
        with pytest.raises(ScenarioError, match=words):
            load_scenario(path)


def test_an_alias_that_holds_itself_is_refused() -> None:
    with pytest.raises(ScenarioError):
        parse_scenario("fabrics: &a [*a]\nworkload: []")


def test_large_fabrics_are_for_the_simulator() -> None:
    text = "fabric: {kind: rail-only, domains: 64, rails: 8}\nworkload: [{collective: all-reduce, size: 1GB}]\n"
    assert "use the simulator" in problems(text)[0][2]
    scenario = parse_scenario(text + "backend: simulator")
    assert scenario.scale_for(scenario.build_fabrics()["rail-only"]).rate == 1


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [(5, 5), ("5", 5), ("5 B", 5), ("1kB", 1000), ("1KiB", 1024), ("1.5 MiB", 1572864), ("2gib", 2**31)],
)
def test_sizes(text: object, size_bytes: int) -> None:
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize("text", [0, -1, True, 1.5, None, "", "MiB", "-1MiB", "1.5B", "0.1kB5", "nan", "1e3"])
def test_what_is_no_size(text: object) -> None:
    with pytest.raises(ValueError, match="found"):
        parse_size_bytes(text)


def test_moments() -> None:
    assert parse_moment("40%").seconds(10.0) == 4.0
    assert parse_moment("2.5 s").seconds(10.0) == 2.5
    for text in ("40", "-1s", 3, None, "3ms"):
        with pytest.raises(ValueError, match="like '40%'"):
            parse_moment(text)
    for text in ("40%", "2.5s", "12.5%"):
        assert str(parse_moment(text)) == text


def test_texts() -> None:
    assert [size_text(size) for size in (64 * 2**20, 1_500_000_000, 12, 1536)] == [
        "64 MiB",
        "1.5 GB",
        "12 B",
        "1.54 kB",
    ]
    assert [duration_text(time) for time in (13.125, 6.56e-3, 2.1e-5, 3e-9)] == ["13.1 s", "6.56 ms", "21 us", "3 ns"]
    assert [rate_text(rate) for rate in (400_000, 20, 3_600_000)] == ["400 Gbit/s", "20 Mbit/s", "3600 Gbit/s"]
