"""The comparison of outputs: what it lets through, and what it does not."""

import pytest

from tests.lessons.matching import same_line, why_different
from tests.lessons.pages import EXACT, Allowance, Output

QUARTER = Allowance(percent=25)
TWENTY = Allowance(factor=20)
ANY = Allowance(factor=float("inf"))


def shown(text: str, allowance: Allowance = EXACT) -> Output:
    return Output(tuple(text.splitlines()), 1, allowance)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a  b\n\nc", "a b\nc\n"),
        ("...\nend", "one\ntwo\nend"),
        ("begin\n...", "begin\none\ntwo"),
        ("a\n...\nb", "a\nb"),
        ("a\n...\nb\n...\nc", "a\nx\nb\nx\nb\ny\nc"),
        ("results: 20260101-000000-x", "results: 20261130-114732-x"),
        ("since 2026-01-01 00:00:00", "since 2026-11-30 16:40:35"),
        ("─────\n───", "───\n─────────"),
        ("one two ...", "one two three four"),
    ],
)
def test_what_is_the_same(one, other):
    assert why_different(shown(one), other) == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "b"),
        ("a", ""),
        ("", "a"),
        ("a", "a\nb"),
        ("a\nb", "a"),
        ("b\na", "a\nb"),
        ("...\nb", "a\nb\nc"),
        ("a\n...", "b\na\nc"),
        ("one two ...", "one two"),
        ("one two ...", "one three four"),
        ("took 3 ms", "took 4 ms"),
        ("results: 20260101-000000-x", "results: 20261130-114732-y"),
        ("2 relays", "1 relays"),
        ("d0r1-rail1 is down", "d0r2-rail2 is down"),
    ],
)
def test_what_is_not_the_same(one, other):
    assert why_different(shown(one), other) != ""


def test_the_difference_names_both_lines():
    assert why_different(shown("a\nb\nc"), "a\nx\nc") == "shown: 'b'; printed: 'x'"
    assert why_different(shown("a\nb"), "a") == "shown: 'b'; printed: nothing more"


@pytest.mark.parametrize(
    ("one", "other", "allowance"),
    [
        ("8.42 8.42 383", "8.90 8.01 366", QUARTER),
        ("slower by +50.0 %", "slower by +41.3 %", QUARTER),
        ("6,291 kB", "6,300 kB", QUARTER),
        ("noticed after 3 ms", "noticed after 11 ms", TWENTY),
        ("time 2007ms", "time 2012ms", QUARTER),
        ("s0r1-eth1 in 0.51", "s0r1-eth1 in 2.31", TWENTY),
        ("0.00", "0.00", TWENTY),
        ("0.0", "0.04", TWENTY),
        ("s0r1-eth2 out 0.23", "s0r1-eth2 out 5.43", ANY),
        ("nv0-eth4 out 0.00", "nv0-eth4 out 12.50", ANY),
    ],
)
def test_measured_numbers_may_differ(one, other, allowance):
    assert same_line(one, other, allowance)
    assert not same_line(one, other) or one == other


@pytest.mark.parametrize(
    ("one", "other", "allowance"),
    [
        ("8.42", "12.6", QUARTER),
        ("slower by +50.0 %", "slower by +70.0 %", QUARTER),
        ("slower by +50.0 %", "slower by -50.0 %", QUARTER),
        ("noticed after 3 ms", "noticed after 90 ms", TWENTY),
        ("noticed after 90 ms", "noticed after 3 ms", TWENTY),
        ("noticed after 3 ms", "noticed after 0 ms", TWENTY),
        ("3 of 3 probes arrived", "2 of 3 probes arrived", QUARTER),
        ("16 GPUs", "17 GPUs", QUARTER),
        ("16 GPUs", "17 GPUs", TWENTY),
        ("d0r1-rail1", "d0r2-rail2", TWENTY),
        ("dst=10.0.0.3/255.0.0.255", "dst=10.0.0.4/255.0.0.255", TWENTY),
        ("24/24", "23/24", TWENTY),
        ("s0r1-eth1", "s0r1-eth2", TWENTY),
        ("8.42", "failed", QUARTER),
        ("8.42", "8.42 8.42", QUARTER),
        ("8.42 s", "8.42 ms", QUARTER),
        ("1.00 ...", "2.00 more", QUARTER),
        ("s0r1-eth2 out 0.23", "s0r1-eth2 out -", ANY),
        ("s0r1-eth2 out 0.23", "s0r1-eth2 out -0.23", ANY),
        ("s0r1-eth2 out 0.23", "s0r1-eth3 out 0.23", ANY),
        ("3 of 3 probes arrived", "2 of 3 probes arrived", ANY),
    ],
)
def test_an_allowance_does_not_let_everything_through(one, other, allowance):
    assert not same_line(one, other, allowance)
