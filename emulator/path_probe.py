"""Tries paths of a live fabric with one TCP handshake each: an answer, even a refusal, means that the path works."""

from __future__ import annotations

import errno
import select
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from controller.placement import CHANNEL_BASE_PORT, Connection
from controller.planning.probing import Probe
from emulator.kernel import inside_network_namespace
from topologies.addresses import ipv4

ANSWER_S = 2.5
"""How long an answer may take: two SYNs may be lost, as TCP repeats one after 1 s, and a third has half a second."""

_ANSWERED = (0, errno.ECONNREFUSED)


def answered(namespaces: Mapping[str, int], probes: Sequence[Probe], timeout_s: float = ANSWER_S) -> set[Connection]:
    """The probes (by their way there) that got an answer; all are sent at once.

    Both ports of a probe are that of its channel, so that the answer takes the path that was placed for it. Needs
    nobody who listens: the kernel of the other GPU refuses.
    """
    found: set[Connection] = set()
    waiting: dict[int, tuple[Connection, socket.socket]] = {}
    poll = select.poll()
    try:
        for probe in probes:
            opened = _started(namespaces, probe.there)
            waiting[opened.fileno()] = probe.there, opened
            poll.register(opened, select.POLLOUT)
        deadline = time.monotonic() + timeout_s
        while waiting and (left_s := deadline - time.monotonic()) > 0:
            for fd, _ in poll.poll(left_s * 1000):
                each, opened = waiting.pop(fd)
                poll.unregister(fd)
                if opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in _ANSWERED:
                    found.add(each)
                opened.close()
    finally:
        for _, opened in waiting.values():
            opened.close()
    return found


def _started(namespaces: Mapping[str, int], each: Connection) -> socket.socket:
    port = CHANNEL_BASE_PORT + each.channel
    with inside_network_namespace(namespaces[each.src.id]):
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setblocking(False)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    opened.bind((ipv4(each.src.domain, each.src.rail), port))
    with suppress(BlockingIOError, ConnectionRefusedError):
        opened.connect((ipv4(each.dst.domain, each.dst.rail), port))
    return opened
