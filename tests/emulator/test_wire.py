import json
import socket

import numpy as np
import pytest

from emulator.errors import ReplayError
from emulator.wire import RemoteError, error_message, messages, raise_error, record_from_dict, record_to_dict, send
from topologies.builders import build
from topologies.errors import FabricError
from topologies.model import FabricKind, FabricSpec
from topologies.scale import Scale
from workloads.collectives import all_ranks, ring_all_reduce
from workloads.failures import LinkFailure
from workloads.records import (
    ConnectionRecord,
    Event,
    EventKind,
    LinkSeries,
    Progress,
    RunRecord,
    TransferRecord,
    TransferStatus,
)


def record() -> RunRecord:
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    schedule = ring_all_reduce(all_ranks(fabric), 1000, 4)
    series = LinkSeries(("d0r0-rail0",), np.array([0.0, 0.5]), np.array([[0.0], [7.0]]), np.array([[0.0], [9.0]]))
    return RunRecord(
        backend="emulator", fabric=fabric.spec, scale=Scale(20_000, 1000), schedule=schedule,
        failures=(LinkFailure("d0r0-rail0", 1.0, 2.0),), seed=3,
        transfers=(TransferRecord(0, TransferStatus.FAILED, None, None, 0.0, 750, "no path"),),
        links=series, events=(Event(1.0, EventKind.LINK_DOWN, "d0r0-rail0"),),
        faithful=False, notes=("overloaded",), longest_gap_s=0.2, last_computation_s=3.5, engine="agent",
        connections=(ConnectionRecord(0, 1, 0, 3, 2250, 0.5, 1, 0.004),), progress=(Progress(0.2, 0, 100),),
    )  # fmt: skip


def test_a_run_record_survives_the_wire():
    before = record()
    after = record_from_dict(json.loads(json.dumps(record_to_dict(before))))
    for name in RunRecord.__dataclass_fields__:
        if name != "links":
            assert getattr(after, name) == getattr(before, name), name
    assert after.links.total_bytes("d0r0-rail0") == before.links.total_bytes("d0r0-rail0") == 16


def test_messages_keep_their_borders():
    here, there = socket.socketpair()
    with here, there:
        send(here, {"progress": "one\ntwo"})
        send(here, {"result": [1, 2]})
        here.shutdown(socket.SHUT_WR)
        assert list(messages(there)) == [{"progress": "one\ntwo"}, {"result": [1, 2]}]


@pytest.mark.parametrize(("error", "code"), [(FabricError("no link"), 2), (ReplayError("no"), 1), (KeyError("x"), 1)])
def test_errors_keep_their_exit_code(error, code):
    with pytest.raises(RemoteError) as caught:
        raise_error(error_message(error))
    assert caught.value.exit_code == code
    raise_error({"result": None})
