"""Delay and loss without a kernel that has them: what tc is told, and what the kernel's messages would mean."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from emulator import impairments, link_control
from emulator.asking import Answer
from emulator.errors import ImpairmentError, NotEmulatedError
from emulator.impairments import netem_available, netem_of_link, read, set_netem
from emulator.link_control import LinkControl
from emulator.netem import Netem, netem_batch, netem_of
from emulator.shape import QUEUES, Shape, shape, shaper, tc_batch
from emulator.shaping import LINK_CLASS, read_queues
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec, Link, LinkKind
from topologies.scale import default_scale

LINK = Link("d0r0-rail0", LinkKind.NIC, "s0r0", 2, "rail0", 1, 400_000.0)
ENDS = ("s0r0-eth2", "rail0-eth1")
INDEX = {"s0r0-eth2": 7, "rail0-eth1": 9}
OWN = shape(20)
SHAPES = dict.fromkeys(ENDS, OWN)
ROOT, UNDER_NETEM = 0xFFFFFFFF, 0x00090001


def attribute(number: int, payload: bytes) -> bytes:
    return struct.pack("HH", 4 + len(payload), number) + payload + bytes(-len(payload) % 4)


def message(index: int, handle: int, parent: int, kind: str, options: bytes) -> tcmsg:
    """A qdisc as the kernel describes it: struct tcmsg, TCA_KIND (1) and TCA_OPTIONS (2)."""
    body = struct.pack("BBHiIII", 0, 0, 0, index, handle, parent, 0)
    body += attribute(1, kind.encode() + b"\0") + attribute(2, options)
    one = tcmsg(struct.pack("IHHII", 16 + len(body), 36, 2, 1, 0) + body)
    one.decode()
    return one


def netem_message(index: int, delay_ms: float, jitter_ms: float, loss_share: float) -> tcmsg:
    """struct tc_netem_qopt: latency in ticks of 64 ns, limit, loss (2**32 - 1 is all), gap, duplicate, jitter."""
    ticks = [round(value * 1e6 / 64) for value in (delay_ms, jitter_ms)]
    options = struct.pack("IIIIII", ticks[0], 100_000, round(loss_share * 0xFFFFFFFF), 0, 0, ticks[1])
    return message(index, 0x00090000, ROOT, "netem", options)


class Kernel:
    """A kernel with netem: does what tc is told about it, and answers in rtnetlink's messages."""

    def __init__(self, netems: dict[int, Netem] | None = None, shapes: dict[int, Shape] | None = None) -> None:
        self.netems = netems or {}
        self.shapes = {**dict.fromkeys(INDEX.values(), OWN), **(shapes or {})}
        self.lines: list[str] = []

    def get_qdiscs(self) -> Iterable[tcmsg]:
        for index, one in self.shapes.items():
            if index in self.netems:
                netem = self.netems[index]
                yield netem_message(index, netem.delay_ms, netem.jitter_ms, netem.loss_share)
            htb = UNDER_NETEM if index in self.netems else ROOT
            yield message(index, 0x00010000, htb, "htb", attribute(2, struct.pack("IIIII", 3 << 16, 10, 2, 0, 0)))
            for leaf in QUEUES:
                yield message(index, leaf << 16, 0x00010000 | leaf, "bfifo", struct.pack("I", one.queue_bytes))

    def get_classes(self, index: int) -> list[Any]:
        class Class(dict[str, Any]):
            def get_attr(self, name: str) -> Any:
                return self["options"] if name == "TCA_OPTIONS" else {"rate": self["rate"]}

        one = Class(handle=LINK_CLASS, rate=self.shapes[index].rate_bytes_per_s)
        one["options"] = one
        return [one]

    def link(self, _verb: str, index: int) -> list[Any]:
        return [Interface(name) for name in INDEX if INDEX[name] == index]

    def tc(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.lines.append(line)
            index = INDEX[line.split(" dev ")[1].split()[0]]
            told = re.search(r"netem limit \d+ delay ([\d.]+)ms(?: ([\d.]+)ms)? loss ([\d.]+)%", line)
            if told:
                self.netems[index] = Netem(float(told[1]), float(told[2] or 0), float(told[3]) / 100)
            elif line.startswith("qdisc del"):
                self.netems.pop(index, None)


class Interface:
    """An interface as rtnetlink tells of it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def get_attr(self, name: str) -> str:
        return {"IFLA_IFNAME": self._name, "IFLA_OPERSTATE": "UP"}[name]


@pytest.fixture
def links(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> LinkControl:
    """The links of a fabric of four GPUs on that kernel."""
    monkeypatch.setattr(link_control, "ask", lambda _command: Answer(0, "netem"))
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    devices = SimpleNamespace(netlink=kernel, index=INDEX)
    return LinkControl(cast(Any, SimpleNamespace(fabric=fabric, scale=default_scale(fabric), devices=devices)))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(impairments, "_tc", made.tc)
    return made


def test_the_kernels_own_message_is_understood() -> None:
    queues = read_queues(Kernel({7: Netem(40.0, 5.0, 0.02)}))
    assert queues.netem[7].delay_ms == pytest.approx(40.0)
    assert queues.netem[7].jitter_ms == pytest.approx(5.0)
    assert queues.netem[7].loss_share == pytest.approx(0.02)
    assert queues.limit_bytes == dict.fromkeys(INDEX.values(), OWN.queue_bytes), "the shaper below it is seen as ever"
    assert 9 not in queues.netem


def test_the_shaper_is_the_only_child_of_netem_and_is_the_same_as_without() -> None:
    lines = netem_batch("s0r0-eth2", Netem(delay_ms=40.0), Netem(), OWN)
    assert lines[:3] == [
        "qdisc del dev s0r0-eth2 root",
        "qdisc add dev s0r0-eth2 root handle 9: netem limit 100000 delay 40ms loss 0%",
        "qdisc add dev s0r0-eth2 parent 9:1 handle 1: htb default 2",
    ]
    plain = tc_batch({"s0r0-eth2": OWN}).splitlines()
    assert lines[3:] == plain[1:], "classes, queues and filter are untouched by what stands before them"


def test_taking_delay_and_loss_away_gives_the_very_shaping_back() -> None:
    lines = netem_batch("s0r0-eth2", Netem(), Netem(delay_ms=40.0, loss_share=0.1), OWN)
    assert lines == ["qdisc del dev s0r0-eth2 root", *tc_batch({"s0r0-eth2": OWN}).splitlines()]
    assert shaper("s0r0-eth2", OWN) == lines[1:]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Netem(40.0), "delay 40ms loss 0%"),
        (Netem(40.0, 5.5), "delay 40ms 5.5ms loss 0%"),
        (Netem(loss_share=0.001), "delay 0ms loss 0.1%"),
        (Netem(0.25, 0.1, 0.005), "delay 0.25ms 0.1ms loss 0.5%"),
        (Netem(loss_share=1.0), "delay 0ms loss 100%"),
    ],
)
def test_where_netem_is_already_only_its_values_change(wanted: Netem, words: str) -> None:
    lines = netem_batch("x", wanted, Netem(delay_ms=1.0), OWN)
    assert lines == [f"qdisc change dev x root handle 9: netem limit 100000 {words}"]
    assert netem_batch("x", wanted, wanted, OWN) == []


def test_both_ends_get_it(kernel: Kernel) -> None:
    set_netem(kernel, LINK, Netem(delay_ms=2.0), INDEX, SHAPES, available=True)
    for name in ENDS:
        assert f"qdisc add dev {name} root handle 9: netem limit 100000 delay 2ms loss 0%" in kernel.lines


def test_a_degraded_and_blackholed_link_stays_so_below_the_delay(kernel: Kernel) -> None:
    kernel.shapes[7] = Shape(625_000, OWN.burst_bytes, 1, OWN.quantum_bytes)
    set_netem(kernel, LINK, Netem(delay_ms=2.0), INDEX, SHAPES, available=True)
    near = [line for line in kernel.lines if ENDS[0] in line]
    assert any("classid 1:1 htb rate 5000000bit" in line for line in near)
    assert f"qdisc add dev {ENDS[0]} parent 1:2 handle 2: bfifo limit 1" in near
    far = [line for line in kernel.lines if ENDS[1] in line]
    assert any("classid 1:1 htb rate 20000000bit" in line for line in far)


def test_delay_and_loss_do_not_override_one_another(links: LinkControl, kernel: Kernel) -> None:
    def state(what: dict[str, Any]) -> tuple[float, float, float]:
        now = links.impair(LINK.id, what)
        return now["delay_ms"], now["jitter_ms"], now["loss_share"]

    assert state({"delay_ms": 40.0, "jitter_ms": 5.0}) == pytest.approx((40.0, 5.0, 0.0))
    assert state({"loss_share": 0.02}) == pytest.approx((40.0, 5.0, 0.02))
    assert state({"delay_ms": 8.0, "jitter_ms": 0.0}) == pytest.approx((8.0, 0.0, 0.02))
    assert state({"loss_share": 0.0}) == pytest.approx((8.0, 0.0, 0.0))
    assert set(kernel.netems) == set(INDEX.values())
    assert state({"delay_ms": 0.0, "jitter_ms": 0.0}) == (0.0, 0.0, 0.0)
    assert kernel.netems == {}


def test_a_loss_that_is_not_a_round_number_stays_through_a_change_of_the_delay(links: LinkControl) -> None:
    links.impair(LINK.id, {"loss_share": 1 / 3})
    assert links.impair(LINK.id, {"delay_ms": 3.3})["loss_share"] == pytest.approx(1 / 3, rel=1e-6)


def test_what_is_shown_is_what_the_kernel_holds() -> None:
    kernel = Kernel(dict.fromkeys(INDEX.values(), Netem(40.0, 0.0, 0.25)))
    (one,) = read(kernel, [LINK], {LINK.id: True}, INDEX, SHAPES)
    assert one
    state = one.to_dict()
    assert (state["delay_ms"], state["loss_share"], state["rate_mbps"], state["blackhole"]) == (
        pytest.approx(40.0), pytest.approx(0.25), None, [],
    )  # fmt: skip
    assert netem_of_link(read_queues(kernel), LINK, INDEX) == one.netem
    assert not read(Kernel(), [LINK], {LINK.id: True}, INDEX, SHAPES)[0]


def test_without_netem_it_is_refused_and_nothing_is_told_to_tc(kernel: Kernel) -> None:
    with pytest.raises(NotEmulatedError, match="no netem"):
        set_netem(kernel, LINK, Netem(delay_ms=2.0), INDEX, SHAPES, available=False)
    set_netem(kernel, LINK, Netem(), INDEX, SHAPES, available=False)
    assert kernel.lines == [], "there is nothing to take away"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Netem(delay_ms=-1.0), "a delay of -1 ms"),
        (Netem(delay_ms=10_001.0), "a delay of 10001 ms"),
        (Netem(delay_ms=float("nan")), "a delay of nan ms"),
        (Netem(delay_ms=1.0, jitter_ms=2.0), "a jitter of 2 ms: use 0 to its delay of 1 ms"),
        (Netem(loss_share=1.5), "lose a share of 1.5"),
        (Netem(loss_share=float("nan")), "lose a share of nan"),
    ],
)
def test_impossible_values_are_one_sentence(kernel: Kernel, wanted: Netem, words: str) -> None:
    with pytest.raises(ImpairmentError, match=words):
        set_netem(kernel, LINK, wanted, INDEX, SHAPES, available=True)
    assert kernel.lines == []


def test_netem_is_there_if_the_kernel_takes_it() -> None:
    assert netem_available(lambda _command: Answer(0, "netem"))
    assert not netem_available(lambda _command: Answer(0, ""))
    assert not netem_available(lambda _command: Answer(3, "Operation not permitted"))


def test_ticks_are_of_64_ns() -> None:
    assert netem_of({"delay": 15_625, "jitter": 0, "loss": 0xFFFFFFFF}) == Netem(1.0, 0.0, 1.0)
