import pytest

from experiments import emulated
from experiments.emulated import check_essential, marked
from experiments.plan import plan, simulator_backend
from experiments.scenario import parse_scenario
from topologies.errors import MissingCapabilityError

SCENARIO = """\
fabric: {kind: rail-only, domains: 2, rails: 2}
workload: [{collective: all-reduce, size: 64MiB}]
failures: [{kind: delay, delay: 5ms, at: 10%}, {at: 20%}]
"""
HELD = frozenset({"shaping", "fast-failover"})


def test_what_a_machine_lacks_is_marked() -> None:
    healthy, failing = plan(parse_scenario(SCENARIO))
    assert healthy.wanted == ("fast-failover",)
    assert failing.wanted == ("delay", "fast-failover")
    record = simulator_backend(failing, 0, lambda share: None)
    without = marked(record, failing, HELD)
    assert without.notes[-1] == "not emulated: delay (this machine cannot)"
    assert not without.faithful
    assert without.failures == failing.failures
    whole = marked(record, failing, HELD | {"delay"})
    assert (whole.notes, whole.faithful) == (record.notes, True)
    assert marked(record, healthy, HELD).faithful
    alone = plan(parse_scenario(SCENARIO + "routing: {local_repair: false}\n"))[0]
    assert alone.wanted == ()


def test_what_is_essential_and_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "probe", lambda: HELD)
    check_essential(parse_scenario(SCENARIO))
    check_essential(parse_scenario(SCENARIO + "essential: [fast-failover]\n"))
    with pytest.raises(MissingCapabilityError, match="cannot emulate delay and jitter"):
        check_essential(parse_scenario(SCENARIO + "essential: [delay, jitter]\n"))
