"""The terminal view: what messages make of it, and that it fits the terminal; and `watch --once` as typed."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from cli.main import main
from cli.watch_view import View, drawn, event_words, run_line
from dashboard.drawing import draw
from dashboard.loads import Counters, loads
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec
from topologies.scale import default_scale

SLOW = {"link": "d1r1-rail1", "down": False, "blackhole": [], "rate_mbps": 5.0, "delay_ms": 0.0, "loss_share": 0.0}
DOWN = {**SLOW, "link": "d0r2-rail2", "down": True, "rate_mbps": None}
RUN = {"event": "run", "running": True, "name": "ring", "engine": "agent", "t_s": 65.0, "transfers": 30, "ended": 12,
       "failed": 1}  # fmt: skip


def view_of(domains: int = 4, rails: int = 4) -> View:
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, domains, rails))
    view = View()
    view.take({"event": "fabric", "name": "lab", **draw(fabric, default_scale(fabric)).to_dict()})
    return view


def load(view: View, **out_mbps: float) -> None:
    """Load links, named with ``_`` for ``-``, in the direction out."""
    wanted = {name.replace("_", "-"): value for name, value in out_mbps.items()}
    ids = [one.link_id for one in view.loads()]
    rates = [wanted.get(link, 0.0) for link in ids]
    view.take({"event": "loads", "a_to_b_mbps": rates, "b_to_a_mbps": [0.0] * len(ids)})


def lines(view: View, width: int = 80, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    console.print(drawn(view, width, height, "12:00:00"))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_the_busiest_links_come_first_with_both_directions() -> None:
    view = view_of()
    load(view, d3r3_rail3=19.0, d0r0_nv0=18.0, d2r0_rail0=4.0)
    shown = lines(view)
    rows = [line.split() for line in shown[3:]]
    assert [row[0] for row in rows[:3]] == ["d3r3-rail3", "d2r0-rail0", "d0r0-nv0"]
    assert rows[0][1:] == ["19.0", "########", "0.0", "........", "20"]
    assert rows[2][2] == "#......."
    assert shown[0].startswith("lab: rail-only, 16 GPUs   12:00:00")


def test_failures_are_said_in_words_and_events_newest_last() -> None:
    view = view_of()
    view.take({"event": "impairments", "links": [SLOW, DOWN]})
    for number in range(60):
        view.take({"event": "controller", "what": {"event": "link-down", "link": f"d0r{number}-x", "t_s": 0.0}})
    view.take(RUN)
    text = "\n".join(lines(view))
    assert "WRONG (2)" in text
    assert "d1r1-rail1  5 Mbit/s only" in text
    assert "d0r2-rail2  down" in text
    assert "d0r59-x is down" in text.splitlines()[-1]
    assert "run: ring (agent) running, 1:05; transfers: 12 of 30 ended, 1 failed" in text


@pytest.mark.parametrize(("width", "height"), [(80, 24), (132, 50), (60, 16)])
@pytest.mark.parametrize(("domains", "rails"), [(2, 2), (4, 4), (32, 8)])
def test_it_fits_the_terminal(width: int, height: int, domains: int, rails: int) -> None:
    view = view_of(domains, rails)
    load(view, d0r0_rail0=20.0)
    view.take({"event": "impairments", "links": [{**SLOW, "link": f"d{n}r0-rail0"} for n in range(domains)] * 8})
    for number in range(60):
        view.take({"event": "controller", "what": {"event": "partitioned", "count": number, "t_s": 0.0}})
    view.take({**RUN, "name": "a-name-that-is-far-too-long-for-a-terminal-" * 4})
    shown = lines(view, width, height)
    assert len(shown) <= height
    assert max(map(len, shown)) <= width
    assert shown[-1].endswith("59 pairs of GPUs have no path")


def test_before_anything_is_heard_it_can_be_drawn() -> None:
    assert "run: no run" in "\n".join(lines(View()))


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"event": "link-up", "link": "d0r0-rail0"}, "d0r0-rail0 is up: the controller noticed"),
        (
            {"event": "repaired", "links_down": ["a"], "elapsed_s": 0.0213},
            "new rules in force after 21 ms (links down: 1)",
        ),
        ({"event": "repaired", "links_down": [], "elapsed_s": 0.02}, "new rules in force after 20 ms (all links up)"),
        ({"event": "partitioned", "count": 0, "pairs": []}, "every pair of GPUs has a path"),
        ({"event": "hold-down", "link": "x", "hold_s": 2.0, "downs": 4}, "x flaps: not used for 2 s"),
        ({"event": "switch-lost", "switch": "rail0"}, "switch-lost: rail0"),
        ({"event": "port-down", "switch": "rail0"}, ""),
    ],
)  # fmt: skip
def test_events_in_words(event: dict[str, Any], words: str) -> None:
    assert event_words(event) == words


def test_a_run_with_iperf3_tells_no_transfers_on_their_way() -> None:
    assert run_line({**RUN, "engine": "iperf3", "ended": 0, "failed": 0}) == "ring (iperf3) running, 1:05"


def test_the_end_of_the_fabric_is_noticed() -> None:
    view = view_of()
    view.take({"event": "gone"})
    assert view.gone


class Running:
    name = "lab"

    def __init__(self) -> None:
        self.fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
        self.scale = default_scale(self.fabric)
        self._looks = 0

    def observe(self, since: int, impairments: bool = False) -> dict[str, Any]:
        self._looks += 1
        links = len(list(self.fabric.failure_targets()))
        events = [{"event": "link-down", "link": "d0r0-rail0", "t_s": 0.0}] if since == 0 else []
        return {
            "t_s": float(self._looks), "a_to_b_bytes": [self._looks * 1_250_000] * links, "b_to_a_bytes": [0] * links,
            "impairments": [SLOW] if impairments else None, "events": events, "next": 1,
        }  # fmt: skip


@pytest.mark.parametrize("options", [(), ("--once",), ("--json",)])
def test_without_a_terminal_it_is_one_plain_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr("cli.watch.running_fabric", lambda _name: Running())
    monkeypatch.setattr("cli.watch.need_root", lambda _command: None)
    monkeypatch.setattr("cli.watch.time", SimpleNamespace(sleep=lambda _s: None))
    with pytest.raises(SystemExit) as ended:
        main(["watch", *options])
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (0, "")
    if options == ("--json",):
        links = {one["link"]: one for one in json.loads(out)["links"]}
        assert links["d1r1-rail1"] == {
            "link": "d1r1-rail1", "rate_mbps": 20.0, "out_mbps": 10.0, "in_mbps": 0.0, "wrong": "5 Mbit/s only"
        }  # fmt: skip
        return
    rows = {line.split()[0]: line.split() for line in out.splitlines()}
    assert rows["d0r0-rail0"][1:] == ["10.00", "0.00", "20", "-"]
    assert rows["d1r1-rail1"][4:] == ["5", "Mbit/s", "only"]
    assert out.splitlines()[-1].endswith("d0r0-rail0 is down: the controller noticed")


def test_loads_are_those_of_the_page() -> None:
    view = view_of()
    ids = [one.link_id for one in view.loads()]
    nothing = [0.0] * len(ids)
    view.take(loads(Counters(0.0, nothing, nothing), Counters(1.0, nothing, [1_250_000.0, *nothing[1:]])))
    assert (view.loads()[0].out_mbps, view.loads()[0].in_mbps) == (0.0, 10.0)
