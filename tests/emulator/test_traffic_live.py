import subprocess
import threading
from pathlib import Path

import psutil
import pytest

from emulator.engines import Engine
from emulator.environments import PROJECT_ROOT, interpreter
from emulator.names import interface_name
from emulator.wire import RemoteError
from simulator.routes import controller_router
from simulator.shares import fair_rates_mbps
from tests.emulator.live import fabric, live, ofctl
from topologies.model import NO_FAILURES, FabricKind, LinkKind
from workloads.collectives import all_ranks, all_to_all, rail_rings, ring_all_reduce
from workloads.failures import LinkFailure
from workloads.records import EventKind, TransferStatus

pytestmark = live

HEALTHY_GPU_SWITCH_RULES = 12


@pytest.fixture(scope="module", params=[FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED], ids=lambda kind: kind.value)
def sixteen(request):
    """A fabric of 16 GPUs, healthy at the start of every test."""
    with fabric("sixteen", request.param, domains=4, rails=4) as running:
        yield running


def test_healthy_gpu_switches_hold_few_rules(sixteen):
    flows = [line for line in ofctl("sixteen", "dump-flows", "s0r0").splitlines() if "priority=" in line]
    assert len(flows) <= HEALTHY_GPU_SWITCH_RULES


def test_all_240_pairs_reach_each_other_healthy_and_with_any_one_link_down(sixteen):
    assert sixteen.reach_all() == {"tested": 240, "reached": 240, "unreachable": []}
    for link in sixteen.fabric.failure_targets():
        failed = sixteen.fail(link.id)
        assert failed["changed"]
        outcome = sixteen.reach_all()
        assert outcome["unreachable"] == [], link.id
        assert sixteen.restore(link.id)["changed"]
    assert sixteen.status()["links_down"] == []
    assert sixteen.reach_all()["reached"] == 240


def test_failing_twice_changes_nothing_and_a_host_link_cannot_fail(sixteen):
    nic = next(link.id for link in sixteen.fabric.links if link.kind is LinkKind.NIC)
    assert sixteen.fail(nic)["changed"]
    assert not sixteen.fail(nic)["changed"]
    assert sixteen.restore(nic)["changed"]
    assert not sixteen.restore(nic)["changed"]
    with pytest.raises(RemoteError, match="cannot fail") as caught:
        sixteen.fail("d0r0-s0r0")
    assert caught.value.exit_code == 2
    with pytest.raises(RemoteError, match="no link 'd0r0-rail9'"):
        sixteen.fail("d0r0-rail9")


def test_probes_take_the_declared_path_and_the_port_counters_agree(sixteen):
    trace = sixteen.trace("d0r0", "d2r3", 4)
    assert trace["agree"], trace["disagreement"]
    assert trace["arrived"] == 4
    interfaces = [interface for interface, *_ in trace["captured"][0]]
    if sixteen.fabric.kind is FabricKind.RAIL_ONLY:
        assert trace["relays"] == ["d0r3"]
        assert interface_name("s0r3", 2) in interfaces, "cross-rail traffic leaves by the relay's NIC"
    else:
        assert trace["relays"] == []
        assert any(interface.startswith("spine") for interface in interfaces)
    times = [t_s for _, _, t_s, _ in trace["captured"][0]]
    assert times == sorted(times)


def test_a_wrong_relay_rule_is_reported():
    with fabric("wrong", domains=4, rails=4) as running:
        ofctl("wrong", "add-flow", "nv0", "priority=60000,ip,nw_dst=10.0.3.3,actions=output:2")
        trace = running.trace("d0r0", "d2r3", 3)
        assert not trace["agree"]
        assert "nv0-eth2 (out) where nv0-eth4 (out) is declared" in trace["disagreement"]


def test_a_schedule_is_replayed_in_full_and_a_failure_is_survived():
    with fabric("replay", domains=4, rails=4) as running:
        schedule = ring_all_reduce(rail_rings(running.fabric), 160 << 20, 16)
        record = running.run(schedule, [LinkFailure("d1r1-rail1", 1.6, 2.6)])
        assert record.complete, [transfer.reason for transfer in record.transfers]
        assert {transfer.transfer_id for transfer in record.transfers} == set(schedule.by_id)
        kinds = [event.kind for event in record.events]
        assert kinds.index(EventKind.LINK_DOWN) < kinds.index(EventKind.LINK_UP)
        assert record.longest_gap_s is not None
        assert record.longest_gap_s < 0.5
        down, up = (
            next(event.t_s for event in record.events if event.kind is kind)
            for kind in (EventKind.LINK_DOWN, EventKind.LINK_UP)
        )
        outage = record.links.around_outage("d1r1-rail1", down, up)
        assert outage.before > 0
        assert outage.during == 0
        assert outage.after > 0
        assert running.status()["links_down"] == []


def test_an_unreachable_peer_fails_with_a_reason_and_the_rest_goes_on():
    with fabric("dead") as running:
        for link in ("d1r1-rail1", "d1r1-nv1"):
            running.fail(link)
        record = running.run(all_to_all(all_ranks(running.fabric), 4 << 20, 4), engine=Engine.IPERF3)
        dead = running.fabric.rank(running.fabric.gpu("d1r1"))
        for transfer in record.transfers:
            planned = record.schedule.by_id[transfer.transfer_id]
            if dead in (planned.src, planned.dst):
                assert transfer.status is TransferStatus.FAILED
                assert transfer.reason
            else:
                assert transfer.status is TransferStatus.COMPLETE, transfer.reason


def test_long_flows_get_their_fair_share():
    with fabric("fair", domains=4, rails=4) as running:
        pairs = [(rank, (rank + 5) % 16) for rank in range(16)]
        paths = controller_router(running.fabric)(NO_FAILURES)
        fair = fair_rates_mbps(running.fabric, paths, pairs, running.scale)
        ids = [(running.fabric.gpu_of_rank(src).id, running.fabric.gpu_of_rank(dst).id) for src, dst in pairs]
        measured = running.steady(ids, 4.0)
        shares = [rate / best for rate, best in zip(measured["rates_mbps"], fair, strict=True)]
        assert min(shares) > 0.85
        assert max(shares) < 1.02


def test_a_second_run_on_a_busy_fabric_is_refused_and_hanging_up_ends_the_first():
    with fabric("busyrun") as running:
        failure: list[BaseException] = []

        def long_run() -> None:
            try:
                running.steady([("d0r0", "d1r0")], 30.0)
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=long_run, daemon=True)
        thread.start()
        for _ in range(500):
            if "iperf3" in {process.info["name"] for process in psutil.process_iter(["name"])}:
                break
        with pytest.raises(RemoteError, match="another run is using this fabric"):
            running.steady([("d0r1", "d1r1")], 1.0)


def test_stock_mininet_builds_and_pings_the_fabric_as_typed(tmp_path):
    if not interpreter(".venv").exists():
        pytest.skip("the checkout has no environment of its own yet: run ./railbed setup")
    before = Path("/proc/sys/net/core/wmem_max").read_text(), subprocess.run(["ip", "link"], capture_output=True).stdout
    words = f"mn --custom {PROJECT_ROOT}/topologies/mn.py --topo rail_only,4,4 --switch railbed --link railbed"
    done = subprocess.run(
        [*words.split(), "--controller", "railbed", "--test", "pingall"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "Results: 0% dropped (240/240 received)" in done.stderr + done.stdout, done.stderr[-2000:]
    after = Path("/proc/sys/net/core/wmem_max").read_text(), subprocess.run(["ip", "link"], capture_output=True).stdout
    assert after == before, "the machine's settings and interfaces are as before"
