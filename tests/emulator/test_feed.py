import threading
from itertools import pairwise

from emulator.agent_steps import Step, batches, steps
from emulator.feed import Feed
from emulator.thinning import Thinned
from topologies.scale import Scale
from workloads.schedule import Computation, Tag, Transfer


def follow(feed: Feed, count: int, subscribed: threading.Event) -> list:
    over = threading.Event()
    reader = feed.follow(over, 0.01)
    read = []

    def run() -> None:
        for message in reader:
            read.append(message)
            if message.get("event") == "missed" or len(read) >= count:
                over.set()

    thread = threading.Thread(target=run)
    thread.start()
    subscribed.wait(0.05)
    return [read, thread]


def test_every_reader_gets_what_is_published_from_its_start_on():
    feed = Feed()
    feed.publish({"event": "before"})
    readers = [follow(feed, 3, threading.Event()) for _ in range(2)]
    for number in range(3):
        feed.publish({"event": "now", "number": number})
    for read, thread in readers:
        thread.join(5)
        assert [message["number"] for message in read] == [0, 1, 2]


def test_a_slow_reader_is_told_what_it_missed_and_the_feed_stays_small():
    feed = Feed(most_kept=4)
    reader = feed.follow(threading.Event(), 0.01)
    feed.publish({"number": -1})
    seen = []

    def first() -> None:
        seen.append(next(reader))

    thread = threading.Thread(target=first)
    thread.start()
    while not seen:
        feed.publish({"number": 0})
    thread.join()
    for number in range(10):
        feed.publish({"number": number})
    rest = next(message for message in reader if message.get("event") == "missed" or message["number"] > 0)
    assert rest["event"] == "missed"
    assert [next(reader)["number"] for _ in range(4)] == [6, 7, 8, 9]


def test_thinning_keeps_evenly_spaced_samples_and_the_last():
    thinned: Thinned[int] = Thinned(10)
    for number in range(1001):
        thinned.add(number)
    kept = thinned.samples()
    assert len(kept) <= 12
    assert kept[0] == 0
    assert kept[-1] == 1000
    gaps = {after - before for before, after in pairwise(kept)}
    assert len(gaps - {kept[-1] - kept[-2]}) <= 1
    few: Thinned[int] = Thinned(10)
    for number in range(10):
        few.add(number)
    assert few.samples() == list(range(10))


def test_steps_are_in_emulated_units():
    transfer = Transfer(0, 1, 2, 1000, (), Tag("a", "b", "c", 0), delay_s=0.5)
    computation = Computation(1, 3, 2.0, (0,), "x")
    made = list(steps([transfer, computation], Scale(rate=10, time=100)))
    assert made == [Step(0, (), 1, 2, 10_000, 50.0), Step(1, (0,), 3, 3, 0, 200.0)]
    assert [len(batch) for batch in batches(made * 5, 4)] == [4, 4, 2]
