"""The resident agent on live fabrics: exact, in order, honest about failures, and followed while it runs."""

import os
import threading
from contextlib import suppress
from dataclasses import replace
from statistics import median

import psutil
import pytest

from emulator.engines import Engine
from emulator.rundir import NAMESPACE_DIR
from experiments.outcome import completion_s
from tests.emulator.live import fabric, live
from workloads.algorithms import STEPWISE
from workloads.collectives import (
    all_ranks,
    all_to_all,
    collective,
    rail_rings,
    ring_all_reduce,
    ring_reduce_scatter,
)
from workloads.failures import FailureKind, LinkFailure
from workloads.frontier import OnFailure
from workloads.records import EventKind, TransferStatus
from workloads.schedule import Computation

pytestmark = live


@pytest.fixture(scope="module")
def sixteen():
    with fabric("agents", domains=4, rails=4) as running:
        yield running


def test_both_engines_agree_on_bulk_transfers(sixteen):
    """The typical transfer of the better of two runs each, taken in turn: a busy machine hits some of them only."""
    schedule = ring_reduce_scatter(rail_rings(sixteen.fabric), 128 << 20, 16)
    rates_mbps = {engine: [] for engine in Engine}
    for engine in (*Engine, *Engine):
        record = sixteen.run(schedule, engine=engine)
        assert record.engine == engine.value
        assert record.complete, [one.reason for one in record.transfers]
        rates_mbps[engine].append(median(one.received_bytes * 8e-6 / one.duration_s for one in record.transfers))
    assert max(rates_mbps[Engine.AGENT]) == pytest.approx(max(rates_mbps[Engine.IPERF3]), rel=0.05)


def test_dependencies_delays_and_computing_are_kept(sixteen):
    ring = collective("all-reduce", all_ranks(sixteen.fabric), 1 << 20, 16, form=STEPWISE)
    last = ring.transfers[-1].id
    delayed = tuple(replace(one, delay_s=2e-5) if one.tag.phase == 1 else one for one in ring.transfers)
    computations = (Computation(last + 1, 3, 1e-4, (last,), "a"), Computation(last + 2, 3, 1e-4, (last + 1,), "b"))
    schedule = replace(ring, transfers=delayed, computations=computations)
    record = sixteen.run(schedule)
    assert record.engine == "agent"
    assert record.complete, [one.reason for one in record.transfers]
    made = {one.transfer_id: one for one in record.transfers}
    for planned in schedule.transfers:
        waited_s = record.scale.emulated_s(planned.delay_s)
        for before in planned.after:
            assert made[planned.id].start_s >= made[before].end_s + waited_s - 2e-6
        assert made[planned.id].received_bytes == record.scale.emulated_bytes(planned.size_bytes)
    assert record.last_computation_s == pytest.approx(made[last].end_s + record.scale.emulated_s(2e-4), abs=2e-6)
    assert completion_s(record) == record.last_computation_s
    pairs = {(one.src, one.dst) for one in schedule.transfers}
    assert {(one.src, one.dst) for one in record.connections} == pairs
    assert sum(one.messages for one in record.connections) == len(schedule.transfers)
    assert sum(one.size_bytes for one in record.connections) == sum(one.received_bytes for one in record.transfers)


def test_links_fail_and_come_back_under_the_agent(sixteen):
    schedule = ring_all_reduce(rail_rings(sixteen.fabric), 64 << 20, 16)
    record = sixteen.run(schedule, [LinkFailure("d1r1-rail1", 0.4, 1.0)], engine=Engine.AGENT)
    assert record.complete, [one.reason for one in record.transfers]
    kinds = [event.kind for event in record.events]
    assert kinds.index(EventKind.LINK_DOWN) < kinds.index(EventKind.LINK_UP)
    assert kinds.count(EventKind.PHASE_START) == kinds.count(EventKind.PHASE_END) == 2
    assert sixteen.status()["links_down"] == []


def test_many_small_messages(sixteen):
    schedule = collective("all-to-all", all_ranks(sixteen.fabric), 64 << 10, 16, form=STEPWISE)
    copies = 10
    count = len(schedule.transfers)
    many = replace(
        schedule,
        transfers=tuple(
            replace(one, id=one.id + number * count, after=tuple(before + number * count for before in one.after))
            for number in range(copies)
            for one in schedule.transfers
        ),
    )
    record = sixteen.run(many, engine=Engine.AGENT)
    assert record.complete
    assert len(record.transfers) == copies * count


def test_a_reader_follows_a_run(sixteen):
    messages = []
    subscribed = threading.Event()

    def read() -> None:
        for message in sixteen.follow():
            messages.append(message)
            if message["event"] == "run-end":
                return

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    subscribed.wait(0.3)
    schedule = ring_all_reduce(all_ranks(sixteen.fabric), 32 << 20, 16)
    record = sixteen.run(schedule, engine=Engine.AGENT)
    thread.join(10)
    kinds = [message["event"] for message in messages]
    assert (kinds[0], kinds[-1]) == ("run-start", "run-end")
    links = [message for message in messages if message["event"] == "links"]
    assert len(links) > 3
    assert sum(links[-1]["a_to_b_bytes"]) > sum(links[0]["a_to_b_bytes"])
    ended = [one for message in messages if message["event"] == "transfers" for one in message["ended"]]
    assert {one[0] for one in ended} == set(schedule.by_id)
    assert record.progress
    assert all(one.received_bytes >= 0 for one in record.progress)


def test_the_end_of_the_agent_is_told_of_every_transfer_that_is_left(sixteen):
    schedule = ring_all_reduce(all_ranks(sixteen.fabric), 128 << 20, 16)
    messages = sixteen.follow()
    killed = threading.Thread(target=lambda: kill_agent("agents", messages), daemon=True)
    killed.start()
    record = sixteen.run(schedule, engine=Engine.AGENT)
    killed.join(10)
    assert len(record.transfers) == len(schedule.transfers)
    left = [one for one in record.transfers if one.status is not TransferStatus.COMPLETE]
    assert {one.reason for one in left} == {"the agent that replays the schedule ended with code -9"}
    assert sixteen.run(collective("broadcast", {"all": (0, 5)}, 1 << 20, 16), engine=Engine.AGENT).complete


def kill_agent(name, messages):
    """Kill the agent of one fabric, known by its network namespace, once it has said something."""
    next(message for message in messages if message["event"] == "transfers")
    namespace = os.stat(NAMESPACE_DIR / f"rb-{name}").st_ino
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if "emulator.agent" in process.cmdline() and os.stat(f"/proc/{process.pid}/ns/net").st_ino == namespace:
                process.kill()


@pytest.mark.parametrize("policy", OnFailure)
def test_a_dead_path_fails_by_its_deadline_says_why_and_the_rest_follows_the_policy(policy):
    with fabric("agentdead") as running:
        for link in ("d1r1-rail1", "d1r1-nv1"):
            running.fail(link)
        schedule = all_to_all(all_ranks(running.fabric), 4 << 20, 4)
        # One pair goes on by itself, whatever becomes of the others.
        src, dst = (running.fabric.rank(running.fabric.gpu(name)) for name in ("d0r0", "d0r1"))
        last = schedule.transfers[-1].id
        # The first of its transfers comes before the failure (1.5 s or more after the start), the second long after it.
        first = replace(schedule.transfers[0], id=last + 1, src=src, dst=dst, delay_s=0.0001)
        own = (first, replace(first, id=last + 2, after=(last + 1,), delay_s=0.004))
        record = running.run(
            replace(schedule, transfers=(*schedule.transfers, *own)), engine=Engine.AGENT, on_failure=policy,
            give_up_s=2.0,
        )  # fmt: skip
        made = {one.transfer_id: one for one in record.transfers}
        assert len(made) == len(schedule.transfers) + 2, "every transfer is accounted for"
        dead = running.fabric.rank(running.fabric.gpu("d1r1"))
        failed = [one.id for one in schedule.phases()[0] if dead in (one.src, one.dst)]
        for number in failed:
            assert made[number].status is TransferStatus.FAILED
            assert "no answer from" in made[number].reason
            assert "partitioned, no path from" in made[number].reason
        for phase in schedule.phases()[1:]:
            for one in phase:
                assert made[one.id].status is TransferStatus.FAILED
                assert made[one.id].start_s is None
                assert made[one.id].reason in [f"not started: transfer {number} failed" for number in failed]
        assert made[last + 1].status is TransferStatus.COMPLETE
        later = made[last + 2]
        if policy is OnFailure.CONTINUE:
            assert later.status is TransferStatus.COMPLETE
        else:
            assert later.reason.startswith("not started: transfer")


def test_a_path_that_goes_silent_in_the_middle_is_given_up():
    with fabric("agentsilent") as running:
        schedule = collective("send-recv", {"pair": (0, 2)}, 64 << 20, 4)
        silence = LinkFailure("d1r0-rail0", 0.5, None, FailureKind.BLACKHOLE)
        record = running.run(schedule, [silence], engine=Engine.AGENT, give_up_s=1.0)
        (made,) = record.transfers
        assert made.status is TransferStatus.INCOMPLETE
        assert 0 < made.received_bytes < made.size_bytes
        assert made.reason.startswith("no byte arrived at d1r0 for 1 s (")
