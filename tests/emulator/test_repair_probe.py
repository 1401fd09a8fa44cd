from emulator.probe import Stream


def test_the_longest_gap_is_between_arrivals_whatever_their_order() -> None:
    stream = Stream(6, ((0.0, 0.10), (0.1, 0.20), (0.2, 0.95), (0.3, 0.90), (0.4, 1.0)))
    gap = stream.longest_gap()
    assert gap is not None
    assert abs(gap[0] - 0.7) < 1e-9
    assert gap[1] == 0.9


def test_too_few_arrivals_have_no_gap() -> None:
    assert Stream(5, ((0.0, 0.1),)).longest_gap() is None
