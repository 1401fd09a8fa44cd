"""A steady stream of small datagrams between two GPUs: its longest silence is the outage that traffic saw.

The sending and timing is done by :mod:`emulator.gap_stream`, a program of its own.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain, islice, pairwise, product

from controller.policy import RoutingPolicy
from controller.routing import Routes
from emulator.errors import EmulatorError
from emulator.kernel import die_with_parent
from topologies.addresses import ipv4
from topologies.model import Fabric, Failures, Gpu, Link, LinkKind

Pair = tuple[Gpu, Gpu]

DEFAULT_RATE_PER_S = 100
START_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Stream:
    """What a stream saw: datagrams sent, and (sent, received) of each that arrived, in monotonic seconds."""

    sent: int
    arrivals: tuple[tuple[float, float], ...]

    def longest_gap(self) -> tuple[float, float] | None:
        """(length, end) of the longest silence at the receiver; None with fewer than two arrivals."""
        received = sorted(received for _, received in self.arrivals)
        return max(((after - before, after) for before, after in pairwise(received)), default=None)


class StreamProcess:
    """Sends ``rate_per_s`` datagrams a second from ``src`` to ``dst`` until stopped, in a process of its own."""

    def __init__(self, namespaces: dict[str, int], src: Gpu, dst: Gpu, rate_per_s: int = DEFAULT_RATE_PER_S) -> None:
        fds = (namespaces[src.id], namespaces[dst.id])
        order = {
            "src_namespace_fd": fds[0],
            "dst_namespace_fd": fds[1],
            "address": ipv4(dst.domain, dst.rail),
            "rate_per_s": rate_per_s,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "emulator.gap_stream"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            pass_fds=fds, preexec_fn=die_with_parent,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], START_TIMEOUT_S)
        if not ready or not self._process.stdout.readline():
            self._process.kill()
            self._process.wait()
            raise EmulatorError(f"the stream from {src.id} to {dst.id} did not start")

    def stop(self) -> Stream:
        """End the stream and take what it saw."""
        output, _ = self._process.communicate()
        if self._process.returncode != 0:
            raise EmulatorError(f"the probe stream ended with code {self._process.returncode}")
        seen = json.loads(output)
        return Stream(seen["sent"], tuple((sent, received) for sent, received in seen["arrivals"]))


MOST_PAIRS = 4096
"""Pairs that are tried for one that crosses a link between switches."""


def pair_across(fabric: Fabric, link_id: str, policy: RoutingPolicy, down: Collection[str] = ()) -> Pair | None:
    """(a neighbour, the GPU behind a NIC or NVLink) whose healthy path crosses that link; None if there is no such.

    For a link between switches any pair whose path by ``policy`` crosses it, while those in ``down`` are down and it is
    up: the path hash decides by source and destination alone, so every packet of the pair does.
    """
    link = fabric.link(link_id)
    if link.kind is LinkKind.FABRIC:
        return _across_switches(fabric, link, Routes(fabric, Failures(links=frozenset(down) - {link_id}), policy))
    if link.kind is LinkKind.HOST:
        return None
    behind = fabric.switch_by_id[link.a]
    if link.kind is LinkKind.NVLINK:
        others = [gpu for gpu in fabric.gpus if gpu.domain == behind.domain and gpu.rail != behind.rail]
    else:
        others = [gpu for gpu in fabric.gpus if gpu.domain != behind.domain and gpu.rail == behind.rail]
    target = next(gpu for gpu in fabric.gpus if gpu.switch_id == behind.id)
    return (others[0], target) if others else None


def _across_switches(fabric: Fabric, link: Link, routes: Routes) -> Pair | None:
    """The first pair whose path crosses a link between switches, of a GPU below its lower end and one that is not."""
    below = {one.other(link.a) for one in fabric.links_of(link.a) if one.kind is LinkKind.NIC}
    near = [gpu for gpu in fabric.gpus if gpu.switch_id in below]
    far = [gpu for gpu in fabric.gpus if gpu.switch_id not in below]
    for src, dst in islice(chain(product(near, far), product(far, near)), MOST_PAIRS):
        path = routes.path(src, dst)
        if path is not None and link.id in path.links:
            return src, dst
    return None
