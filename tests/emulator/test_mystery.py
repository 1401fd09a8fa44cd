"""The hidden fault: which one a seed draws, what is said of its link meanwhile, and how answers are judged."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.policy import RoutingPolicy
from controller.routing import Routes
from emulator.errors import MysteryError, NotEmulatedError
from emulator.link_control import LinkControl
from emulator.mystery import DEFAULT_KINDS, RATE_SHARES, Fault, FaultKind, conceal, draw_fault, fault_kinds, judge
from emulator.mystery_control import MysteryControl
from topologies.builders import build
from topologies.errors import UnknownElementError
from topologies.model import Fabric, FabricKind, FabricSpec, LinkKind
from topologies.scale import default_scale, link_rate_mbps

KINDS = [
    (FabricKind.RAIL_ONLY, 4, 4, {}),
    (FabricKind.RAIL_ONLY, 4, 4, {"uplinks": 2}),
    (FabricKind.RAIL_ONLY, 1, 2, {}),
    (FabricKind.RAIL_OPTIMIZED, 4, 4, {"spines": 2, "parallel_links": 2}),
    (FabricKind.SPINE_LEAF, 4, 4, {}),
    (FabricKind.IDEAL, 1, 16, {}),
    (FabricKind.RAIL_ONLY, 32, 8, {}),
]
HEALTHY = {
    "link": "d0r0-rail0", "down": False, "blackhole": [], "rate_mbps": None, "own_rate_mbps": 20.0,
    "delay_ms": 0.0, "jitter_ms": 0.0, "loss_share": 0.0,
}  # fmt: skip


@cache
def routes_of(spec: FabricSpec) -> Routes:
    return Routes(build(spec))


def drawn(fabric: Fabric, seed: int, kinds: tuple[FaultKind, ...] = DEFAULT_KINDS) -> Fault:
    return draw_fault(routes_of(fabric.spec), default_scale(fabric), seed, kinds)


@pytest.mark.parametrize(("kind", "domains", "rails", "values"), KINDS)
def test_a_seed_draws_the_same_fault_again_and_only_on_a_link_that_carries_traffic(
    kind: FabricKind, domains: int, rails: int, values: dict[str, Any]
) -> None:
    fabric = build(FabricSpec(kind, domains, rails, **values))
    seeds = range(20 if len(fabric.gpus) < 100 else 3)
    faults = [drawn(fabric, seed) for seed in seeds]
    routes = Routes(fabric)
    assert faults[:3] == [draw_fault(routes, default_scale(fabric), seed, DEFAULT_KINDS) for seed in seeds[:3]]
    for fault in faults:
        link = fabric.link(fault.link_id)
        assert link.kind is not LinkKind.HOST
        near = [gpu for gpu in fabric.gpus if gpu.switch_id in (link.a, link.b)] or list(fabric.gpus)
        paths = (routes.path(src, dst) for src in near for dst in fabric.gpus if src != dst)
        assert any(path is not None and link.id in path.links for path in paths)
    assert len({fault.link_id for fault in faults}) > 1


def test_all_kinds_and_many_links_come_up() -> None:
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
    faults = [drawn(fabric, seed) for seed in range(200)]
    assert {fault.kind for fault in faults} == set(DEFAULT_KINDS)
    assert {fault.link_id for fault in faults} == {link.id for link in fabric.failure_targets()}


def test_a_slow_link_is_slower_than_a_nic_though_it_be_an_nvlink() -> None:
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
    nic_mbps = link_rate_mbps(fabric.link("d0r0-rail0"), default_scale(fabric))
    rates = {drawn(fabric, seed, (FaultKind.DEGRADE,)).what["rate_mbps"] for seed in range(100)}
    assert rates == {nic_mbps * share for share in RATE_SHARES}


def test_which_kinds_are_possible_does_not_change_the_link() -> None:
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
    for kind in FaultKind:
        fault = drawn(fabric, 5, (kind,))
        assert (fault.link_id, fault.kind) == (drawn(fabric, 5).link_id, kind)


def test_nothing_can_be_hidden_where_no_link_carries_anything() -> None:
    with pytest.raises(MysteryError, match="no link of it carries traffic"):
        drawn(build(FabricSpec(FabricKind.RAIL_ONLY, 1, 1)), 1)


def test_kinds_are_named_in_any_order_and_unknown_ones_refused() -> None:
    assert fault_kinds(["loss", "blackhole"]) == (FaultKind.BLACKHOLE, FaultKind.LOSS)
    assert fault_kinds([]) == DEFAULT_KINDS
    with pytest.raises(MysteryError, match="there is no fault 'degraded': did you mean 'degrade'"):
        fault_kinds(["degraded"])


@pytest.mark.parametrize(
    ("hidden", "since", "shown"),
    [
        ({"blackhole": ["out", "in"]}, {}, {}),
        ({"rate_mbps": 2.0}, {}, {}),
        ({"delay_ms": 20.0}, {}, {}),
        ({"rate_mbps": 2.0}, {"down": True}, {"down": True}),
        ({"rate_mbps": 2.0}, {"rate_mbps": 4.0}, {"rate_mbps": 4.0}),
        ({"blackhole": ["out"]}, {"rate_mbps": 4.0}, {"rate_mbps": 4.0}),
        ({"blackhole": ["out"]}, {"blackhole": ["out", "in"]}, {"blackhole": ["out", "in"]}),
    ],
)
def test_what_is_hidden_is_not_shown_and_what_others_did_is(
    hidden: dict[str, Any], since: dict[str, Any], shown: dict[str, Any]
) -> None:
    at_first = {**HEALTHY, **hidden}
    assert conceal({**at_first, **since}, at_first) == {**HEALTHY, **shown}
    other = {**HEALTHY, "link": "d1r0-rail0", "rate_mbps": 2.0}
    assert conceal(other, at_first) == other
    assert conceal(at_first, None) == at_first


@pytest.mark.parametrize(
    ("kind", "values", "link", "answers"),
    [
        (
            FabricKind.RAIL_ONLY,
            {},
            "d0r1-rail1",
            {
                "d0r1-rail1": "right", "d3r1-rail1": "close", "d0r1-nv0": "close", "rail1": "close", "d0r1": "close",
                "s0r1": "close", "nv0": "wrong", "d0r2-nv0": "wrong", "d0r2-rail2": "wrong", "d3r1": "wrong",
            },
        ),
        (FabricKind.RAIL_ONLY, {"uplinks": 2}, "d0r1-rail1", {"d3r1-rail1p1": "close", "d3r2-rail2p1": "wrong"}),
        (
            FabricKind.RAIL_OPTIMIZED,
            {"spines": 2, "parallel_links": 2},
            "leaf0-spine1#2",
            {
                "leaf0-spine1#2": "right", "leaf0-spine1": "close", "leaf3-spine1": "close", "leaf0-spine0": "close",
                "leaf3-spine0": "wrong", "spine1": "close", "spine0": "wrong", "d0r0-leaf0": "close", "d0r0": "wrong",
            },
        ),
    ],
)  # fmt: skip
def test_answers_are_right_close_or_wrong(
    kind: FabricKind, values: dict[str, Any], link: str, answers: dict[str, str]
) -> None:
    fabric = build(FabricSpec(kind, 4, 4, **values))
    control = LinkControl(cast(Any, SimpleNamespace(fabric=fabric, scale=default_scale(fabric))))
    fault = Fault(link, FaultKind.BLACKHOLE, {"blackhole": "both"})
    for answer, wanted in answers.items():
        judgement, sentence = judge(fabric, fault, answer, control.targets(answer))
        assert (answer, judgement.value) == (answer, wanted)
        assert sentence.startswith(wanted)
        assert wanted == "right" or link not in sentence.replace(answer, ""), "the answer is not given away"


class Links:
    """Links as a kernel would hold them."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self.states: dict[str, dict[str, Any]] = {}

    def impair(self, link_id: str, what: dict[str, Any]) -> dict[str, Any]:
        if "loss_share" in what:
            raise NotEmulatedError("this kernel has no netem")
        state = {**HEALTHY, "link": link_id}
        if "blackhole" in what:
            state["blackhole"] = {"both": ["out", "in"], "out": ["out"], "in": ["in"]}[what["blackhole"]]
        else:
            state["rate_mbps"] = what["rate_mbps"]
        self.states[link_id] = state
        return state

    def impairments(self) -> list[dict[str, Any]]:
        return list(self.states.values())

    def targets(self, target: str) -> list[Any]:
        return [self._fabric.link(target)]


@pytest.fixture
def links() -> Links:
    return Links(build(FabricSpec(FabricKind.RAIL_ONLY, 4, 4)))


@pytest.fixture
def control(links: Links) -> MysteryControl:
    fabric = links._fabric
    return MysteryControl(
        cast(Any, SimpleNamespace(fabric=fabric, scale=default_scale(fabric), links=links, policy=RoutingPolicy()))
    )


def test_one_is_hidden_until_it_is_found(control: MysteryControl, links: Links) -> None:
    assert control.state() == {"open": False}
    assert control.hide(7, []) == {"open": True, "seed": 7, "kinds": ["blackhole", "one-way", "degrade"], "tries": 0}
    (link_id,) = links.states
    assert control.shown_impairments() == []
    links.impair("d3r3-rail3", {"rate_mbps": 5.0})
    assert [one["link"] for one in control.shown_impairments()] == ["d3r3-rail3"]
    wrong = control.solve("d3r3-nv3")
    assert (wrong["tries"], wrong["open"], wrong["fault"]) == (1, True, None)
    right = control.solve(link_id)
    assert right["judgement"] == "right"
    assert (right["tries"], right["open"], right["fault"]) == (2, False, links.states[link_id])
    assert {one["link"] for one in control.shown_impairments()} == {"d3r3-rail3", link_id}
    with pytest.raises(MysteryError, match="nothing is hidden"):
        control.solve(link_id)


def test_giving_up_tells_it(control: MysteryControl, links: Links) -> None:
    control.hide(1, ["one-way"])
    (link_id,) = links.states
    answer = control.give_up()
    assert (answer["judgement"], answer["sentence"]) == ("given-up", f"it was {link_id}")
    assert answer["fault"] == links.states[link_id]
    assert control.state() == {"open": False}


def test_a_name_that_does_not_exist_is_no_try(control: MysteryControl) -> None:
    control.hide(1, [])
    with pytest.raises(UnknownElementError, match="no link 'd0r0-rail9'"):
        control.solve("d0r0-rail9")
    assert control.state()["tries"] == 0


def test_only_one_and_only_in_a_healthy_fabric(control: MysteryControl, links: Links) -> None:
    links.impair("d3r3-rail3", {"rate_mbps": 5.0})
    with pytest.raises(MysteryError, match=r"while something is wrong \(d3r3-rail3\)"):
        control.hide(1, [])
    links.states.clear()
    control.hide(1, [])
    with pytest.raises(MysteryError, match="hidden already"):
        control.hide(2, [])
    assert control.state()["seed"] == 1
    control.forget()
    assert control.state() == {"open": False}


def test_what_the_kernel_lacks_is_refused_and_nothing_is_hidden(control: MysteryControl) -> None:
    with pytest.raises(NotEmulatedError):
        control.hide(1, ["loss"])
    assert control.state() == {"open": False}
