"""The self-test of a fabric that has just come up: every pair by datagram, TCP at full frame size along a ring.

All sockets belong to this process; each was opened inside the namespace of its GPU.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass

from emulator.errors import SelfTestError
from emulator.kernel import inside_network_namespace
from topologies.addresses import ipv4
from topologies.model import Fabric, Gpu

PROBE_PORT = 7
TCP_PORT = 5999
IP_MTU_DISCOVER = 10
IP_PMTUDISC_DO = 2
RETRY_S = 0.25
TCP_BYTES = 40_000
_PROBE = struct.Struct("!II")


@dataclass(frozen=True)
class Reachability:
    """Outcome of a reachability test: which ordered pairs did not get a datagram through, out of how many."""

    tested: int
    unreachable: tuple[tuple[Gpu, Gpu], ...]

    @property
    def reached(self) -> int:
        """Number of pairs that did get through."""
        return self.tested - len(self.unreachable)


def all_pairs(fabric: Fabric) -> list[tuple[Gpu, Gpu]]:
    """All ordered pairs of GPUs, in rounds in which every GPU sends once and receives once."""
    count = len(fabric.gpus)
    return [(fabric.gpus[i], fabric.gpus[(i + shift) % count]) for shift in range(1, count) for i in range(count)]


def check_reachability(
    namespaces: dict[str, int], pairs: Iterable[tuple[Gpu, Gpu]], timeout_s: float, payload_bytes: int = 64
) -> Reachability:
    """Send a datagram along every pair, again every 250 ms until it arrived or ``timeout_s`` has passed.

    ``payload_bytes`` of 1472 fills a frame; fragmentation is forbidden. ``namespaces`` maps GPU ids to descriptors.
    """
    waiting = dict.fromkeys(pairs)
    tested = len(waiting)
    gpus = {gpu for pair in waiting for gpu in pair}
    numbers = {gpu: number for number, gpu in enumerate(sorted(gpus))}
    by_number = {number: gpu for gpu, number in numbers.items()}
    sockets: dict[Gpu, socket.socket] = {}
    selector = selectors.DefaultSelector()
    try:
        for gpu in gpus:
            sockets[gpu] = _datagram_socket(namespaces[gpu.id])
            selector.register(sockets[gpu], selectors.EVENT_READ, gpu)
        deadline = time.monotonic() + timeout_s
        padding = bytes(max(0, payload_bytes - _PROBE.size))
        while waiting:
            for src, dst in tuple(waiting):
                message = _PROBE.pack(numbers[src], numbers[dst]) + padding
                sockets[src].sendto(message, (ipv4(dst.domain, dst.rail), PROBE_PORT))
                _collect(selector, waiting, by_number, 0.0)
            retry_at = min(time.monotonic() + RETRY_S, deadline)
            while waiting and time.monotonic() < retry_at:
                _collect(selector, waiting, by_number, retry_at - time.monotonic())
            if time.monotonic() >= deadline:
                break
    finally:
        selector.close()
        for one in sockets.values():
            one.close()
    return Reachability(tested, tuple(waiting))


def _datagram_socket(namespace_fd: int) -> socket.socket:
    with inside_network_namespace(namespace_fd):
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        opened.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        opened.setblocking(False)
        opened.bind(("0.0.0.0", PROBE_PORT))
        return opened


def _collect(
    selector: selectors.BaseSelector,
    waiting: dict[tuple[Gpu, Gpu], None],
    by_number: dict[int, Gpu],
    timeout_s: float,
) -> None:
    """Take what has arrived off the list of pairs that are waited for."""
    for key, _ in selector.select(max(0.0, timeout_s)):
        assert isinstance(key.fileobj, socket.socket)
        while True:
            try:
                message = key.fileobj.recv(2048)
            except OSError:
                break
            src, dst = _PROBE.unpack_from(message)
            if by_number[dst] == key.data:
                waiting.pop((by_number[src], key.data), None)


def check_tcp(fabric: Fabric, namespaces: dict[str, int], timeout_s: float) -> tuple[tuple[Gpu, Gpu], ...]:
    """Pairs of a ring over all GPUs along which 40 kB of TCP did not pass in time, in full frames.

    Ping alone would not notice that the switches mishandle TCP's super-packets or check sums.
    """
    count = len(fabric.gpus)
    if count < 2:
        return ()
    missing = {(fabric.gpus[i], fabric.gpus[(i + 1) % count]) for i in range(count)}
    selector = selectors.DefaultSelector()
    opened: list[socket.socket] = []
    received: dict[socket.socket, int] = {}
    unsent: dict[socket.socket, int] = {}
    pair_of: dict[socket.socket, tuple[Gpu, Gpu]] = {}
    listeners: dict[socket.socket, tuple[Gpu, Gpu]] = {}
    try:
        for src, dst in missing:
            with inside_network_namespace(namespaces[dst.id]):
                listener = socket.create_server(("0.0.0.0", TCP_PORT))
            listener.setblocking(False)
            opened.append(listener)
            listeners[listener] = (src, dst)
            selector.register(listener, selectors.EVENT_READ)
        for src, dst in missing:
            with inside_network_namespace(namespaces[src.id]):
                client = socket.socket()
            client.setblocking(False)
            client.connect_ex((ipv4(dst.domain, dst.rail), TCP_PORT))
            opened.append(client)
            unsent[client] = TCP_BYTES
            selector.register(client, selectors.EVENT_WRITE)
        deadline = time.monotonic() + timeout_s
        while missing and time.monotonic() < deadline:
            for key, _ in selector.select(deadline - time.monotonic()):
                one = key.fileobj
                assert isinstance(one, socket.socket)
                if one in listeners:
                    accepted, _ = one.accept()
                    accepted.setblocking(False)
                    opened.append(accepted)
                    received[accepted] = 0
                    pair_of[accepted] = listeners[one]
                    selector.register(accepted, selectors.EVENT_READ)
                elif one in unsent:
                    _send_rest(selector, one, unsent)
                else:
                    received[one] += len(one.recv(65_536))
                    if received[one] >= TCP_BYTES:
                        missing.discard(pair_of[one])
                        selector.unregister(one)
    finally:
        selector.close()
        for one in opened:
            one.close()
    return tuple(sorted(missing))


def _send_rest(selector: selectors.BaseSelector, client: socket.socket, unsent: dict[socket.socket, int]) -> None:
    try:
        unsent[client] -= client.send(bytes(unsent[client]))
    except OSError:
        selector.unregister(client)
        return
    if unsent[client] <= 0:
        selector.unregister(client)


def run_self_test(fabric: Fabric, namespaces: dict[str, int], timeout_s: float, largest_full: int = 64) -> str:
    """Test a healthy fabric; one line that says what was tested. Raises SelfTestError naming what did not pass.

    Up to ``largest_full`` GPUs every ordered pair is tested; above, each GPU's neighbours at power-of-two distances.
    """
    count = len(fabric.gpus)
    if count <= largest_full:
        pairs = all_pairs(fabric)
    else:
        shifts = [1 << exponent for exponent in range(count.bit_length() - 1)]
        pairs = [(fabric.gpus[i], fabric.gpus[(i + shift) % count]) for shift in shifts for i in range(count)]
    outcome = check_reachability(namespaces, pairs, timeout_s)
    if outcome.unreachable:
        src, dst = outcome.unreachable[0]
        raise SelfTestError(
            f"{len(outcome.unreachable)} of {outcome.tested} pairs do not reach each other, for example {src.id} to "
            f"{dst.id}: see the fabric's controller.log and 'railbed doctor'"
        )
    stuck = check_tcp(fabric, namespaces, timeout_s)
    if stuck:
        src, dst = stuck[0]
        raise SelfTestError(
            f"TCP at full frame size does not pass on {len(stuck)} of {count} pairs, for example {src.id} to {dst.id}, "
            "though datagrams do: check the offload settings with 'railbed doctor'"
        )
    sampled = "all" if count <= largest_full else "a sample of"
    return f"{sampled} {outcome.tested} ordered pairs reach each other; TCP passes at full frame size on {count}"
