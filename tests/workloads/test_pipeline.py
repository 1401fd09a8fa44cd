import pytest

from workloads.pipeline import Pass, stage_passes

CASES = [(1, 1, 1), (1, 5, 1), (2, 1, 1), (4, 2, 1), (4, 8, 1), (3, 7, 1), (2, 4, 2), (4, 8, 2), (4, 4, 3), (3, 9, 4)]


@pytest.mark.parametrize(("stages", "micro_batches", "chunks"), CASES)
def test_every_pass_is_made_once_and_forward_first(stages: int, micro_batches: int, chunks: int) -> None:
    for stage in range(stages):
        passes = stage_passes(stage, stages, micro_batches, chunks)
        assert len(passes) == len(set(passes)) == 2 * micro_batches * chunks
        for place, one in enumerate(passes):
            assert 0 <= one.micro_batch < micro_batches
            assert 0 <= one.chunk < chunks
            if one.backward:
                assert Pass(False, one.chunk, one.micro_batch) in passes[:place]


@pytest.mark.parametrize(("stages", "micro_batches", "chunks"), CASES)
@pytest.mark.parametrize("backward_s", [1, 2])
def test_the_pipeline_takes_the_closed_form(stages: int, micro_batches: int, chunks: int, backward_s: int) -> None:
    """m (f + b) of work and (p-1) (f + b) / v of waiting, with messages that take no time."""
    end: dict[tuple[int, bool, int], float] = {}
    left = [list(stage_passes(stage, stages, micro_batches, chunks)) for stage in range(stages)]
    free = [0.0] * stages
    parts = stages * chunks
    while any(left):
        moved = False
        for stage in range(stages):
            while left[stage]:
                one = left[stage][0]
                part = one.chunk * stages + stage
                source = part + 1 if one.backward else part - 1
                if source == parts:
                    start: float | None = end.get((part, False, one.micro_batch))
                else:
                    start = end.get((source, one.backward, one.micro_batch)) if source >= 0 else 0.0
                if start is None:
                    break
                free[stage] = max(free[stage], start) + (backward_s if one.backward else 1) / chunks
                end[part, one.backward, one.micro_batch] = free[stage]
                left[stage].pop(0)
                moved = True
        assert moved, "the stages wait for each other"
    expected = (micro_batches + (stages - 1) / chunks) * (1 + backward_s)
    assert max(free) == pytest.approx(expected)


def test_1f1b_of_the_textbook() -> None:
    text = "".join(f"{'B' if one.backward else 'F'}{one.micro_batch}" for one in stage_passes(1, 4, 6))
    assert text == "F0F1F2B0F3B1F4B2F5B3B4B5"
