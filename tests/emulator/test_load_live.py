import multiprocessing
import os
import time

from emulator.load import LEAST_SATURATED_SHARE, MOST_LOOP_S, MOST_STOLEN_SHARE, MOST_WAIT_SHARE, Load
from emulator.queue_watch import QueueReport
from tests.emulator.live import fabric, live
from workloads.collectives import rail_rings, ring_all_reduce

pytestmark = live


def spin(seconds: float) -> None:
    """Burn a core in a session of its own: the kernel shares its cores among sessions first."""
    os.setsid()
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pass


def test_an_overloaded_machine_is_seen_and_the_run_is_marked():
    hogs = [multiprocessing.Process(target=spin, args=(60,), daemon=True) for _ in range(12)]
    with fabric("hogs", domains=4, rails=4) as running:
        schedule = ring_all_reduce(rail_rings(running.fabric), 48 << 20, 16)
        for hog in hogs:
            hog.start()
        try:
            busy = running.run(schedule)
        finally:
            for hog in hogs:
                hog.kill()
                hog.join()
    assert not busy.faithful, busy.notes
    assert any(note.startswith("overloaded: the switches had to wait for a core") for note in busy.notes)


def test_the_bounds_say_what_was_exceeded():
    assert Load(2.0, MOST_WAIT_SHARE, 1.0, MOST_STOLEN_SHARE).overload == ""
    assert "wait for a core" in Load(2.0, MOST_WAIT_SHARE + 0.01, 1.0, 0.0).overload
    assert "taken by its host" in Load(0.5, 0.1, 1.0, MOST_STOLEN_SHARE + 0.01).overload
    assert "a turn of the switches took up to 70 ms" in Load(0.5, 0.1, 1.0, 0.0, MOST_LOOP_S + 0.01).overload
    slow = QueueReport(0, 1000, LEAST_SATURATED_SHARE - 0.01)
    assert "carried 89% of their rate" in Load(0.5, 0.1, 1.0, 0.0, 0.01, slow).overload
    full = QueueReport(7, 1000, LEAST_SATURATED_SHARE)
    assert Load(0.5, 0.1, 1.0, 0.0, MOST_LOOP_S, full).overload == ""
    assert "7 packets dropped" in Load(0.5, 0.1, 1.0, 0.0, 0.01, full).notes()[1]
