import json
from pathlib import Path

import pytest

from cli.main import main
from experiments.errors import ScenarioError
from experiments.plan import plan
from experiments.scenario import Scenario, parse_scenario, parse_setting
from experiments.scenario.fields import duration_of, parse_duration_s
from experiments.scenario.schema import PUBLISHED, schema_text
from workloads.failures import FailureKind, LinkFailure
from workloads.schedule import Schedule

FABRIC = "fabric: {kind: rail-only, preset: dgx-h100, domains: 4, rails: 4}\n"
RAILS = "workload: [{collective: all-reduce, size: 256MiB, group: rails}]\nbackend: simulator\n"
ROOT = Path(__file__).resolve().parent.parent.parent


def failures(*sections: str) -> tuple[LinkFailure, ...]:
    text = FABRIC + RAILS + "failures:\n" + "".join(f"  - {{{section}}}\n" for section in sections)
    return plan(parse_scenario(text))[-1].failures


@pytest.mark.parametrize("text", ["0.05ms", "3us", "20ms", "2.5s", "0.1s", "1000000min"])
def test_a_duration_is_written_so_that_it_can_be_read_again(text: str) -> None:
    duration_s = parse_duration_s(text)
    assert "e" not in duration_of(duration_s)
    assert parse_duration_s(duration_of(duration_s)) == duration_s


def test_every_kind_of_failure() -> None:
    (down,) = failures("at: 1s, restore: 2s")
    assert (down.link_id, down.at_s, down.restore_s, down.kind) == ("d0r0-rail0", 1.0, 2.0, FailureKind.DOWN)
    (hole,) = failures("link: d1r1-rail1, kind: blackhole, direction: out, at: 1s")
    assert (hole.kind, hole.direction, hole.restore_s) == (FailureKind.BLACKHOLE, "out", None)
    (slow,) = failures("kind: degrade, rate: 25%, at: 1s")
    assert slow.rate_share == 0.25
    (late,) = failures("kind: delay, delay: 5ms, at: 1s")
    assert late.delay_s == 0.005
    (lossy,) = failures("kind: loss, loss: 1%, at: 1s")
    assert lossy.loss_share == 0.01
    flaps = failures("kind: flap, down: 500ms, up: 1s, count: 3, at: 1s")
    assert [(one.at_s, one.restore_s) for one in flaps] == [(1.0, 1.5), (2.5, 3.0), (4.0, 4.5)]


@pytest.mark.parametrize(
    ("target", "links"),
    [
        ("gpu: d1r2", ["d1r2-nv1", "d1r2-rail2"]),
        ("switch: rail3", [f"d{domain}r3-rail3" for domain in range(4)]),
        ("rail: 3", [f"d{domain}r3-rail3" for domain in range(4)]),
        ("nvswitch: 2", [f"d2r{rail}-nv2" for rail in range(4)]),
        ("link: auto-nvlink", None),
    ],
)
def test_every_kind_of_target(target: str, links: list[str] | None) -> None:
    if links is None:
        text = FABRIC + "workload: [{collective: all-reduce, size: 1GB}]\nfailures: [{link: auto-nvlink, at: 1s}]\n"
        assert plan(parse_scenario(text))[-1].failures[0].link_id.endswith("-nv0")
    else:
        assert sorted(one.link_id for one in failures(f"{target}, at: 1s")) == sorted(links)


def test_a_rail_is_its_leaves_on_a_rail_optimized_fabric() -> None:
    text = FABRIC.replace("rail-only", "rail-optimized") + RAILS + "failures: [{rail: 1, at: 1s}]\n"
    found = {one.link_id for one in plan(parse_scenario(text))[-1].failures}
    assert {f"d{domain}r1-leaf1" for domain in range(4)} < found
    assert all("leaf1" in link_id for link_id in found)


def test_a_failure_may_be_for_some_fabrics_only() -> None:
    text = "fabrics:\n" + "".join(f"  - {{name: {name}, kind: rail-only, domains: 2, rails: 2}}\n" for name in "ab")
    text += RAILS + "failures: [{at: 1s, fabrics: [b]}]\n"
    runs = plan(parse_scenario(text))
    assert [(run.label, bool(run.failures)) for run in runs] == [("a", False), ("b", False), ("b", True)]


def schedules(entry: str, more: str = "") -> tuple[Schedule, ...]:
    scenario = parse_scenario(FABRIC + f"workload: [{{{entry}}}]\nbackend: simulator\n{more}")
    return scenario.schedules_for("rail-only", scenario.build_fabrics()["rail-only"])


def test_every_kind_of_workload(tmp_path: Path) -> None:
    small, large = schedules("collective: all-reduce, size: [1MiB, 16MiB], algorithm: hierarchical")
    assert (small.name, large.name) == ("all-reduce 1 MiB", "all-reduce 16 MiB")
    assert "hierarchical" in small.algorithm
    (stepwise,) = schedules("collective: all-gather, size: 1MiB, form: stepwise")
    assert not stepwise.is_phased
    (experts,) = schedules("experts: 32, size: 10MB, top_k: 2, load: {pattern: hot-rank}, within_domains: false")
    assert all(src // 4 != dst // 4 for src, dst in experts.bytes_by_pair())
    (iteration,) = schedules("iteration: gpt3-13b, layers: 1, plan: {tp: 4, dp: 4}, name: mine")
    assert iteration.name == "mine"
    assert iteration.has_computing
    (incast,) = schedules("pattern: incast, flows: 3, size: 5MB")
    assert {transfer.dst for transfer in incast.transfers} == {0}
    (jobs,) = schedules("jobs: [{collective: all-gather, size: 1MB, groups: [[0, 4]]}, {pattern: shift, size: 2MB}]")
    assert {transfer.tag.group for transfer in jobs.transfers} == {"job0/group0", "job1/all"}
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(incast.to_dict()))
    (read,) = schedules(f"schedule: {path}, name: read")
    assert read.transfers == incast.transfers
    assert read.name == "read"


def test_the_order_of_a_ring() -> None:
    def pairs(order: str, seed: int = 0) -> set[tuple[int, int]]:
        (made,) = schedules(f"collective: all-gather, size: 1MB, order: {order}", f"seed: {seed}\n")
        return set(made.bytes_by_pair())

    assert pairs("rank") == {(rank, (rank + 1) % 16) for rank in range(16)}
    assert (3, 7) in pairs("aligned")
    assert pairs("shuffled") == pairs("shuffled")
    assert pairs("shuffled") != pairs("shuffled", 1)


def test_routing_of_a_fabric_and_of_all() -> None:
    text = (
        "fabrics:\n  - {name: a, kind: rail-only, domains: 2, rails: 2, routing: {relay: destination, hash_seed: 9}}\n"
    )
    text += "  - {name: b, kind: rail-only, domains: 2, rails: 2}\nrouting: {bfd: true, local_repair: false}\nseed: 4\n"
    scenario = parse_scenario(text + RAILS)
    first, second = scenario.policy_of("a"), scenario.policy_of("b")
    assert (first.relay.value, first.seed, first.local_repair) == ("destination", 9, False)
    assert (second.relay.value, second.seed) == ("source", 4)
    assert scenario.routing_of("a").bfd is True


def test_a_scenario_with_everything_survives_its_own_yaml() -> None:
    text = FABRIC.replace("rails: 4", "rails: 4, nvlink_per_nic: 4.5, routing: {relay: destination}")
    text += """\
workload:
  - {collective: all-reduce, size: [1MiB, 16MiB], name: a}
  - {experts: 16, size: 1MB, load: {pattern: zipf}}
  - {iteration: gpt3-13b, layers: 1, plan: {tp: 4, dp: 4, utilisation: 40%}}
  - {pattern: permutation, size: 1MB}
  - {jobs: [{collective: all-gather, size: 1MB, groups: [[0, 1]]}]}
failures:
  - {gpu: d0r0, at: 10%, restore: 20%}
  - {kind: flap, down: 500ms, up: 1.5s, count: 2, at: 30%}
  - {kind: delay, delay: 5ms, at: 1s}
essential: [fast-failover]
repetitions: 3
expect:
  - {value: slowdown, workload: experts, zipf, at_least: 5%}
""".replace("workload: experts, zipf", "workload: 'experts, zipf'")
    scenario = parse_scenario(text)
    assert parse_scenario(scenario.to_yaml()) == scenario


def test_values_in_place_of_the_files() -> None:
    text = FABRIC + "workload:\n  - {collective: all-reduce, size: 1MB}\n  - {collective: all-gather, size: 1MB}\n"

    def with_set(*words: str) -> Scenario:
        return parse_scenario(text, "s.yaml", [parse_setting(word) for word in words])

    scenario = with_set("workload.size=4MB", "fabrics[0].domains=2", "scale.time=50", "seed=3")
    assert [entry.size for entry in scenario.workload] == [(4_000_000,), (4_000_000,)]  # type: ignore[union-attr]
    assert (scenario.fabrics[0].domains, scenario.scale.time, scenario.seed) == (2, 50, 3)
    for word, place, words in (
        ("fabric.domian=2", "s.yaml: fabric.domian", "did you mean 'domains'?"),
        ("seed=x", "s.yaml: seed", "expected a whole number"),
        ("workload[7].size=1", "s.yaml: workload[7].size", "there is no entry [7]"),
        ("seed.more=1", "s.yaml: seed", "expected a whole number"),
        ("workload.size=3MX", "s.yaml: workload[0].size", "unknown unit"),
        ("=3", "--set =3", "expected KEY=VALUE"),
        ("seed", "--set seed", "expected KEY=VALUE"),
    ):
        with pytest.raises(ScenarioError) as caught:
            with_set(word)
        assert str(caught.value).startswith(place), str(caught.value)
        assert words in str(caught.value)


def test_the_published_schema_is_that_of_the_model() -> None:
    assert (ROOT / PUBLISHED).read_text(encoding="utf-8") == schema_text(), (
        f"run ./railbed validate --schema > {PUBLISHED}"
    )


def test_validate_tells_all_mistakes_and_the_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(FABRIC + RAILS.replace("256MiB", "1MX") + "sede: 3\n")
    for words, code in ((["validate", "parity", str(wrong)], 2), (["validate", "parity", "incast"], 0),
                        (["validate", "--schema"], 0), (["validate"], 2), (["validate", "parity", "--json"], 0),
                        (["validate", "parity", "--set", "seed=-1"], 2)):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            main(words)
        told = capsys.readouterr()
        assert ended.value.code == code, told.err
        if words[-1] == str(wrong):
            assert "parity: right (2 fabrics, 16 gpus" in told.out
            assert len([line for line in told.err.splitlines() if line.startswith(str(wrong))]) == 2
