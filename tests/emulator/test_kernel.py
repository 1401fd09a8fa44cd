import os
import subprocess
import threading

import pytest

from emulator.kernel import be_prompt, prompt_threads


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
