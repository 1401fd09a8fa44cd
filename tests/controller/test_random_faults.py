"""Random sequences of faults and repairs, told to the controller late, twice, in the wrong order or not at all."""

from __future__ import annotations

import pytest

from controller.fake import Outcome
from controller.policy import Relay, RoutingPolicy
from tests.controller.driver import Driver, targets
from tests.controller.fabrics import NAMED, built

SEQUENCES = {
    "rail-only 2x2": 1100,
    "rail-only 4x1": 250,
    "rail-only 1x4": 250,
    "rail-optimized 3x1": 300,
    "rail-optimized 3x2 one spine": 60,
    "rail-only 3x3 dual-homed": 15,
    "rail-only 4x2 Clos": 15,
    "spine-leaf 4x2": 15,
    "rail-only 4x4": 5,
}
CHUNKS = 5
MAX_FAULTS = 8


def run_sequence(driver: Driver) -> None:
    """Up to 8 faults at a time, each step of the controller's reaction looked at for a loop."""
    pool = targets(driver.fabric)
    random_source = driver.random
    down: set[str] = set()
    for _ in range(random_source.randrange(1, MAX_FAULTS + 1)):
        link_id = random_source.choice(sorted(down) if down and random_source.random() < 0.35 else pool)
        up = link_id in down
        down ^= {link_id}
        driver.set_link(link_id, up)
        garble(driver)
        for _ in range(random_source.randrange(50)):
            if not driver.step():
                break
            src, dst = random_source.sample(driver.fabric.gpus, 2)
            walk = driver.fake.send(src, dst)
            assert walk.outcome is not Outcome.LOOP, (src.id, dst.id, walk)
            assert walk.outcome is not Outcome.DELIVERED or walk.intact
        if random_source.random() < 0.2:
            driver.advance(random_source.random() * 2)
    driver.settle()
    driver.check_converged()


def garble(driver: Driver) -> None:
    """Lose, repeat and reorder what the switches have to tell."""
    for words in driver.to_keeper.values():
        chance = driver.random.random()
        if words and chance < 0.15:
            words.pop(driver.random.randrange(len(words)))
        elif words and chance < 0.3:
            words.append(driver.random.choice(words))
        elif chance < 0.45:
            driver.random.shuffle(words)


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("name", SEQUENCES)
def test_random_faults(name: str, chunk: int) -> None:
    fabric = built(NAMED[name])
    for number in range(chunk, SEQUENCES[name], CHUNKS):
        relay = Relay.DESTINATION if number % 4 == 3 else Relay.SOURCE
        driver = Driver(fabric, RoutingPolicy(relay, local_repair=number % 5 != 4), seed=f"{name} {number}")
        driver.connect_all()
        run_sequence(driver)


def test_there_are_enough_of_them() -> None:
    assert sum(SEQUENCES.values()) >= 2000
