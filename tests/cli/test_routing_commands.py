from cli.path import as_text
from cli.rules import counts_as_text, switch_as_text
from cli.why import as_dict
from cli.why import as_text as why_as_text
from controller.explain import explain
from controller.routing import Routes
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec, Failures, Gpu

FABRIC = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))


def test_three_paths_side_by_side() -> None:
    result = {
        "declared": [["s0r0-eth1", "in"], ["s0r0-eth2", "out"]], "rules": [["s0r0-eth1", "in"]], "relays": ["d0r1"],
        "captured": [[["s0r0-eth1", "in", 0.0, 64], ["s0r0-eth2", "out", 0.0012, 64]], []], "arrived": 1, "sent": 2,
        "agree": False, "disagreement": "by the rules as installed s0r0 drops it",
    }  # fmt: skip
    lines = as_text(result).splitlines()
    assert lines[0].split() == ["DECLARED", "BY", "THE", "RULES", "PROBE", "MS"]
    assert lines[2].split() == ["s0r0-eth2", "out", "-", "s0r0-eth2", "out", "1.20"]
    assert lines[3:] == ["1 of 2 probes arrived", "relays: d0r1",
                         "they do not agree: by the rules as installed s0r0 drops it"]  # fmt: skip


def test_why_has_a_line_for_each_hop() -> None:
    routes = Routes(FABRIC, Failures(links=frozenset({"d0r0-rail0"})))
    told = explain(routes, Gpu(0, 0), Gpu(1, 0))
    assert told.path is not None
    lines = why_as_text(told).splitlines()
    assert len(lines) == len(told.path.hops) + 2
    assert "d0r0-rail0" in lines[-1]
    found = as_dict(routes, told)
    assert [hop["switch"] for hop in found["hops"]] == [hop.switch_id for hop in told.path.hops]
    assert found["relays"] == [gpu.id for gpu in told.path.relays]


def test_rules_are_counted_by_kind_and_told_with_their_purpose() -> None:
    held = {switch.id: {"flows": ["x"] * (2 + switch.rail), "groups": []} for switch in FABRIC.switches}
    lines = counts_as_text(FABRIC, held).splitlines()
    assert lines[1].split() == ["gpu", "4", "2", "to", "3", "0"]
    assert lines[2].split() == ["nvswitch", "2", "1", "0"]
    text = switch_as_text(
        {
            "flows": [
                "cookie=0x0, duration=1s, n_packets=7, priority=200,ip,nw_dst=10.0.0.0/8 actions=group:3",
                "cookie=0x0, duration=1s, table=0, n_packets=1, n_bytes=9, priority=1000,ip actions=" + "load:1," * 40,
            ],
            "groups": ["group_id=3,type=ff"],
        }
    ).splitlines()
    assert text[1].startswith("1000")
    assert "..." in text[1]
    assert text[2].split()[:4] == ["200", "ip,nw_dst=10.0.0.0/8", "group:3", "7"]
    assert text[-1] == "group_id=3,type=ff"
