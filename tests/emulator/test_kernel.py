import os
import select
import subprocess
import threading
import time

import pytest

from emulator.kernel import Timer, be_prompt, peak_memory_mb, prompt_threads


def may_be_prompt() -> bool:
    seen = []

    def try_it() -> None:
        be_prompt()
        seen.append(os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO)

    thread = threading.Thread(target=try_it)
    thread.start()
    thread.join()
    return seen[0]


@pytest.mark.skipif(not may_be_prompt(), reason="this kernel lets nobody but its owner be prompt")
def test_threads_are_prompt_for_a_while_and_what_they_start_is_not():
    before = os.sched_getscheduler(0)
    with prompt_threads():
        assert os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO
        child = subprocess.Popen(["sleep", "30"])
        try:
            assert os.sched_getscheduler(child.pid) == os.SCHED_OTHER
        finally:
            child.kill()
            child.wait()
    assert os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == before


def test_where_it_is_not_allowed_nothing_happens(monkeypatch):
    def refuse(*_words):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with prompt_threads():
        pass


def rings(timer: Timer, within_s: float) -> bool:
    return bool(select.select([timer.fd], [], [], within_s)[0])


def test_a_timer_rings_when_it_is_due_and_not_before():
    timer = Timer()
    due_s = time.monotonic() + 0.02
    timer.set(due_s)
    assert rings(timer, 5.0)
    assert time.monotonic() >= due_s
    timer.rang()
    assert not rings(timer, 0)


def test_a_timer_can_be_set_to_the_past_moved_and_taken_back():
    timer = Timer()
    timer.set(0.0)
    assert rings(timer, 5.0)
    timer.rang()
    timer.set(time.monotonic() + 3600)
    assert not rings(timer, 0)
    timer.set(time.monotonic())
    assert rings(timer, 5.0)
    timer.set(None)
    assert not rings(timer, 0)


def test_memory_at_its_most_is_that_of_a_python_at_least():
    assert 5 < peak_memory_mb() < 100_000
