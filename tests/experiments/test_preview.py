import json

import pytest

from cli.main import main
from experiments.faithfulness import QUEUES, ROUND_TRIPS, critical_path, faithfulness
from experiments.plan import PlannedRun, plan
from experiments.preview import preview_rules, preview_run
from experiments.scenario import parse_scenario


def planned(workload: str, more: str = "") -> list[PlannedRun]:
    text = f"fabric: {{kind: rail-only, preset: dgx-h100, domains: 4, rails: 4}}\nworkload:\n  - {{{workload}}}\n{more}"
    return list(plan(parse_scenario(text)))


def test_what_a_run_would_do() -> None:
    healthy, failing = planned("collective: all-gather, size: 256MiB, group: rails", "failures: [{at: 50%}]\n")
    found = preview_run(healthy)
    assert (found.transfers, found.phases, found.condition) == (16, 1, "healthy")
    assert found.real_bytes == 16 * 3 * 64 * 2**20
    assert found.loads[0].share == pytest.approx(1448 / 1514, rel=1e-6)  # the NICs are busy all the time
    assert found.paths["d0r0", "d1r0"] == ("d0r0-rail0", "d1r0-rail0")
    assert json.dumps(found.to_dict())
    broken = preview_run(failing)
    assert [failure.link_id for failure in broken.failures] == ["d0r0-rail0"]
    assert broken.faithfulness is None
    kinds = {(rules.kind, rules.switches, rules.rules) for rules in preview_rules([healthy])}
    assert {kind for kind, _, _ in kinds} == {"gpu", "nvswitch", "rail"}
    assert all(rules > 0 for _, _, rules in kinds)


def test_the_critical_path_is_the_slowest_of_each_phase() -> None:
    (run,) = planned("experts: 16, size: 300MB, load: {pattern: zipf}")
    path = critical_path(run.predicted)
    phases = run.schedule.phases()
    assert len(path) == len(phases)
    by_id = {one.transfer_id: one for one in run.predicted.transfers}
    for made, phase in zip(reversed(path), phases, strict=True):
        assert made.end_s == max(by_id[transfer.id].end_s or 0.0 for transfer in phase)


def test_the_critical_path_goes_through_computing() -> None:
    (run,) = planned("iteration: gpt3-13b, layers: 1, plan: {tp: 4, dp: 4}")
    path = critical_path(run.predicted)
    ends = [made.end_s or 0.0 for made in path]
    assert ends == sorted(ends, reverse=True)
    assert len(path) > 4


def test_a_scale_that_does_not_hold_and_the_one_that_would() -> None:
    (short,) = planned("collective: all-to-all, size: 16MiB")
    found = faithfulness(short)
    assert found is not None
    assert not found.holds
    assert found.queues < QUEUES
    assert f"scale.time {found.time:g} would hold" in found.sentence
    (long,) = planned("collective: all-to-all, size: 16MiB", f"scale: {{time: {found.time:g}}}\n")
    better = faithfulness(long)
    assert better is not None
    assert better.holds
    assert better.queues >= QUEUES
    assert better.round_trips >= ROUND_TRIPS
    assert better.sentence == ""
    (almost,) = planned("collective: all-to-all, size: 16MiB", f"scale: {{time: {found.time / 1.2:g}}}\n")
    worse = faithfulness(almost)
    assert worse is not None
    assert not worse.holds


def test_the_command_refuses_it(capsys: pytest.CaptureFixture[str]) -> None:
    for words, code in ((["plan", "first-light", "--set", "workload.size=1MiB"], 1), (["plan", "first-light"], 0),
                        (["plan", "first-light", "--paths", "--backend", "simulator"], 0),
                        (["plan", "first-light", "--json"], 0), (["plan", "first-lihgt"], 2)):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            main(words)
        told = capsys.readouterr()
        assert ended.value.code == code, told.err
        if code == 1:
            assert "would hold" in told.err
