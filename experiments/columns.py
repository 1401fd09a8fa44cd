"""Transfers and link counters of a run as Parquet tables, which pandas, polars and DuckDB read.

The same record gives the same bytes. Column names carry the units; sizes are emulated bytes, times emulated seconds
from the start of the run, unless the name says real.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from experiments.errors import ResultsError
from workloads.records import LinkSeries, RunRecord
from workloads.telemetry import ranks_in_calls

TRANSFERS = pa.schema(
    [
        ("id", pa.int64()),
        ("operation", pa.string()),
        ("group", pa.string()),
        ("phase", pa.int32()),
        ("src_rank", pa.int32()),
        ("dst_rank", pa.int32()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("start_s", pa.float64()),
        ("end_s", pa.float64()),
        ("predicted_start_s", pa.float64()),
        ("predicted_end_s", pa.float64()),
        ("received_bytes", pa.float64()),
        ("size_bytes", pa.int64()),
        ("real_size_bytes", pa.int64()),
    ]
)
"""One row a transfer, in the order in which the back end reported them. Null is a time that never came."""

LINKS = pa.schema(
    [
        ("link", pa.dictionary(pa.int32(), pa.string())),
        ("t_s", pa.float64()),
        ("a_to_b_bytes", pa.float64()),
        ("b_to_a_bytes", pa.float64()),
    ]
)
"""Cumulative counters of whole frames, link by link. Inside an idle stretch only the first and last sample are kept."""


COMPUTATIONS = pa.schema(
    [
        ("id", pa.int64()),
        ("label", pa.string()),
        ("rank", pa.int32()),
        ("real_duration_s", pa.float64()),
        ("after", pa.list_(pa.int64())),
    ]
)
"""One row a computation of the schedule, with the ids that it waits for."""


CONNECTIONS = pa.schema(
    [
        ("src_rank", pa.int32()),
        ("dst_rank", pa.int32()),
        ("channel", pa.int32()),
        ("messages", pa.int64()),
        ("size_bytes", pa.int64()),
        ("busy_s", pa.float64()),
        ("retransmits", pa.int64()),
        ("rtt_s", pa.float64()),
    ]
)
"""One row a connection, where the engine keeps some: :class:`workloads.records.ConnectionRecord`."""

PROGRESS = pa.schema([("t_s", pa.float64()), ("id", pa.int64()), ("received_bytes", pa.int64())])
"""Transfers on their way: what each receiver had at that time."""


OPERATIONS = pa.schema(
    [
        ("collective", pa.string()),
        ("group", pa.string()),
        ("sequence", pa.int32()),
        ("algorithm", pa.string()),
        ("real_size_bytes", pa.int64()),
        ("rank", pa.int32()),
        ("entered_s", pa.float64()),
        ("left_s", pa.float64()),
        ("sent_bytes", pa.float64()),
        ("received_bytes", pa.float64()),
    ]
)
"""One row a collective call and rank in it: :mod:`workloads.telemetry`. The size is what all ranks of the call send."""


def run_tables(record: RunRecord, predicted: RunRecord) -> dict[str, pa.Table]:
    """All tables of a run by name: transfers, links and operations, and the others where they have rows."""
    others = {
        "computations": _table(
            [(one.id, one.label, one.rank, one.duration_s, list(one.after)) for one in record.schedule.computations],
            COMPUTATIONS,
        ),
        "connections": _table(
            [(one.src, one.dst, one.channel, one.messages, one.size_bytes, one.busy_s, one.retransmits, one.rtt_s)
             for one in record.connections],
            CONNECTIONS,
        ),
        "progress": _table([(one.t_s, one.transfer_id, one.received_bytes) for one in record.progress], PROGRESS),
    }  # fmt: skip
    return {
        "transfers": transfers_table(record, predicted),
        "links": links_table(record.links),
        "operations": operations_table(record),
        **{name: table for name, table in others.items() if len(table)},
    }


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def transfers_table(record: RunRecord, predicted: RunRecord) -> pa.Table:
    """The transfers of a run beside the fluid model's times for them, as :data:`TRANSFERS`."""
    by_id = record.schedule.by_id
    nominal = {transfer.transfer_id: transfer for transfer in predicted.transfers}
    rows = []
    for made in record.transfers:
        planned, expected = by_id[made.transfer_id], nominal.get(made.transfer_id)
        rows.append(
            (made.transfer_id, planned.tag.operation, planned.tag.group, planned.tag.phase, planned.src, planned.dst,
             made.status.value, made.reason, made.start_s, made.end_s,
             expected.start_s if expected else None, expected.end_s if expected else None,
             made.received_bytes, made.size_bytes, planned.size_bytes)
        )  # fmt: skip
    return _table(rows, TRANSFERS)


def operations_table(record: RunRecord) -> pa.Table:
    """What every rank did in every collective call, as :data:`OPERATIONS`."""
    rows = [
        (call.collective, call.group, call.sequence, call.algorithm, call.size_bytes, one.rank, one.entered_s,
         one.left_s, one.sent_bytes, one.received_bytes)
        for call, ranks in ranks_in_calls(record)
        for one in ranks
    ]  # fmt: skip
    return _table(rows, OPERATIONS)


def links_table(links: LinkSeries) -> pa.Table:
    """The counters of all links as :data:`LINKS`.

    A sample is left out where the link's counters stand as in the one before and in the one after: straight lines
    between the rows of a link give back every sample.
    """
    a, b = links.a_to_b_bytes, links.b_to_a_bytes
    keep = np.ones(a.shape, dtype=bool)
    if len(a) > 2:
        moved = (np.diff(a, axis=0) != 0) | (np.diff(b, axis=0) != 0)
        keep[1:-1] = moved[:-1] | moved[1:]
    link, sample = np.nonzero(keep.T)
    ids = pa.DictionaryArray.from_arrays(pa.array(link, pa.int32()), pa.array(links.link_ids, pa.string()))
    arrays = [ids, pa.array(links.t_s[sample]), pa.array(a[sample, link]), pa.array(b[sample, link])]
    return pa.Table.from_arrays(arrays, schema=LINKS)


def link_series(table: pa.Table, link_ids: Sequence[str]) -> LinkSeries:
    """Inverse of :func:`links_table`, without samples at which no link's counters bend.

    ``link_ids`` names the links of a run that has no samples.
    """
    column = table["link"].cast(pa.string()).combine_chunks().dictionary_encode()
    found, link = column.dictionary.to_pylist(), column.indices.to_numpy()
    if not found:
        empty = np.zeros((0, len(link_ids)))
        return LinkSeries(tuple(link_ids), np.zeros(0), empty, empty)
    t_s, a, b = (table[name].to_numpy() for name in ("t_s", "a_to_b_bytes", "b_to_a_bytes"))
    grid = np.unique(t_s)
    a_to_b, b_to_a = np.zeros((len(grid), len(found))), np.zeros((len(grid), len(found)))
    ends = np.flatnonzero(np.diff(link, append=-1)) + 1
    for position, (start, end) in enumerate(zip((0, *ends[:-1]), ends, strict=True)):
        latest = np.searchsorted(t_s[start:end], grid, side="right") - 1 + start
        a_to_b[:, position], b_to_a[:, position] = a[latest], b[latest]
    return LinkSeries(tuple(found), grid, a_to_b, b_to_a)


def parquet_bytes(table: pa.Table) -> bytes:
    """The table as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", use_dictionary=True)
    return bytes(sink.getvalue())


def read_parquet(path: Path) -> pa.Table:
    """A Parquet file as a table; raises ResultsError for one that is missing or damaged."""
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ResultsError(
            f"{path} cannot be read ({error}); was the result written by Railbed and left whole?"
        ) from None


def bytes_by_pair(transfers: pa.Table) -> dict[tuple[int, int], int]:
    """Real bytes from each rank to each that it sends to."""
    sums = transfers.group_by(["src_rank", "dst_rank"]).aggregate([("real_size_bytes", "sum")])
    columns = (sums[name].to_pylist() for name in ("src_rank", "dst_rank", "real_size_bytes_sum"))
    return {(src, dst): size_bytes for src, dst, size_bytes in zip(*columns, strict=True)}
