from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.columns import bytes_by_pair, link_series, links_table, parquet_bytes, read_parquet, transfers_table
from experiments.errors import ResultsError
from tests.experiments.cases import made, small
from workloads.records import LinkSeries


@given(st.lists(st.lists(st.integers(0, 2), min_size=6, max_size=6), max_size=12))
def test_link_counters_come_back_as_they_were(steps: list[list[int]]) -> None:
    """Three links, both directions; many steps are idle."""
    carried = np.cumsum(np.array(steps, dtype=float).reshape(-1, 6), axis=0)
    links = LinkSeries(("x", "a", "m"), np.arange(len(carried)) * 0.25, carried[:, :3], carried[:, 3:])
    back = link_series(links_table(links), links.link_ids)
    assert back.link_ids == links.link_ids
    for link_id in links.link_ids:
        rates = np.interp(links.t_s, back.t_s, back.carried_bytes(link_id)) if len(back.t_s) else np.zeros(0)
        assert rates == pytest.approx(links.carried_bytes(link_id))


def test_idle_samples_take_no_rows() -> None:
    carried = np.repeat([[0.0], [5.0]], 50, axis=0)
    links = LinkSeries(("a",), np.arange(100.0), carried, carried)
    assert links_table(links)["t_s"].to_pylist() == [0, 49, 50, 99]


def test_transfers_hold_what_was_planned_predicted_and_made(tmp_path: Path) -> None:
    run, record, _ = made(small())[0]
    table = transfers_table(record, run.predicted)
    assert bytes_by_pair(table) == run.schedule.bytes_by_pair()
    path = tmp_path / "transfers.parquet"
    path.write_bytes(parquet_bytes(table))
    assert read_parquet(path).equals(table)
    assert parquet_bytes(table) == path.read_bytes()


@pytest.mark.parametrize("content", [None, b"", b"PAR1", b"x" * 100])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "links.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ResultsError, match=r"links\.parquet cannot be read"):
        read_parquet(path)
