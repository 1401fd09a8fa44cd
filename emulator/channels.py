"""TCP connections between GPUs that stay: opened once, used by one transfer after the other, both ends in this process.

Because both ends are here, nothing but payload crosses the wire: the receiver knows whose bytes come next. Like a
collectives library, a pair of GPUs has several channels; the number of the channel is in the destination port.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from controller.placement import CHANNEL_BASE_PORT
from emulator.kernel import inside_network_namespace
from workloads.records import ConnectionRecord

FIRST_CHANNEL_PORT = CHANNEL_BASE_PORT
MOST_CHANNELS = 8
"""Channels of one pair; further transfers queue up behind those that are there."""

CONNECT_TIMEOUT_S = 5.0
CHUNK_BYTES = 262_144
BACKLOG = 1024

_SO_TIMESTAMPNS = 35
_TIMESTAMP = struct.Struct("qq")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESTAMP.size)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_TCP_INFO_BYTES = 104
_TCP_INFO_RTT, _TCP_INFO_RETRANSMITS = 68, 100
_ZEROS = memoryview(bytes(CHUNK_BYTES))
_SINK = bytearray(CHUNK_BYTES)


@dataclass(frozen=True)
class Host:
    """One GPU as the agent sees it: id, domain, IPv4 address, and a descriptor of its network namespace."""

    gpu_id: str
    domain: int
    address: str
    namespace_fd: int


@dataclass(slots=True, eq=False)
class Sending:
    """One transfer on its way, or the part of one that goes by the channel of that number.

    Times are monotonic; ``allowed_s`` is how long it may take once it has started.
    """

    id: int
    src: int
    dst: int
    size_bytes: int
    allowed_s: float
    channel: int | None = None
    start_s: float | None = None
    end_s: float | None = None
    sent_bytes: int = 0
    received_bytes: int = 0


@dataclass(slots=True, eq=False)
class Channel:
    """One connection, from ``src`` to ``dst``; ``waiting`` have bytes to send, ``coming`` have bytes to receive."""

    src: int
    dst: int
    number: int
    sender: socket.socket
    opened_s: float
    receiver: socket.socket | None = None
    connected: bool = False
    progress_s: float = 0.0
    waiting: deque[Sending] = field(default_factory=deque)
    coming: deque[Sending] = field(default_factory=deque)
    wants_room: bool = True
    messages: int = 0
    size_bytes: int = 0
    busy_s: float = 0.0

    @property
    def idle(self) -> bool:
        """Whether no transfer uses it."""
        return not self.coming


Ended = Callable[[Sending], None]
Failed = Callable[[Sending, str], None]


class Channels:
    """All connections, and the bytes on them. ``ended`` and ``failed`` are told of every transfer, once."""

    def __init__(
        self,
        hosts: list[Host],
        nic_buffer_bytes: int,
        nvlink_buffer_bytes: int,
        most_connections: int,
        give_up_s: float,
        ended: Ended,
        failed: Failed,
    ) -> None:
        self._hosts = hosts
        self._buffers = (nic_buffer_bytes, nvlink_buffer_bytes)
        self._most = most_connections
        self._give_up_s = give_up_s
        self._ended = ended
        self._failed = failed
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._of_pair: dict[tuple[int, int], list[Channel]] = {}
        self._listeners: dict[tuple[int, int], socket.socket] = {}
        # By destination, number of the channel, and address and port of the source: what a listener sees of a newcomer.
        self._expected: dict[tuple[int, int, str, int], Channel] = {}
        self._idle: dict[Channel, None] = {}
        self._busy: dict[Channel, None] = {}
        self._count = 0
        self._used: list[ConnectionRecord] = []
        self._clock_offset_s = 0.0

    def watch(self, fd: int, events: int, handler: Callable[[int], None]) -> None:
        """Have ``handler`` called with the epoll events of a descriptor of somebody else's."""
        self._epoll.register(fd, events)
        self._handlers[fd] = handler

    def unwatch(self, fd: int) -> None:
        """Undo :meth:`watch`."""
        self._epoll.unregister(fd)
        del self._handlers[fd]

    def poll(self, timeout_s: float) -> Iterator[None]:
        """Wait for something to happen, at most ``timeout_s``, and handle it; yields after everything handled."""
        events = self._epoll.poll(timeout_s, 1024)
        # The kernel stamps arrivals with the wall clock; it may have been set since.
        self._clock_offset_s = time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic()
        for fd, happened in events:
            handler = self._handlers.get(fd)
            if handler is not None:  # closed by a handler before it
                handler(happened)
                yield

    def open_ahead(self, src: int, dst: int, number: int = 0) -> None:
        """Open a channel of a pair before it is needed."""
        if all(one.number != number for one in self._of_pair.get((src, dst), ())):
            self._open(src, dst, number)

    @property
    def opening(self) -> bool:
        """Whether some connection is neither open nor given up."""
        return any(not channel.connected for channels in self._of_pair.values() for channel in channels)

    def active(self) -> list[Sending]:
        """Transfers that have started and not ended."""
        return [one for channel in self._busy for one in channel.coming if one.start_s is not None]

    def send(self, sending: Sending) -> None:
        """Start a transfer: on the channel it is for, or a free one of its pair, a new one, or the least busy one."""
        if sending.channel is None:
            channel = self._choose(sending.src, sending.dst)
        else:
            channel = self._numbered(sending.src, sending.dst, sending.channel)
        if isinstance(channel, str):
            self._failed(sending, channel)
            return
        if channel.idle:
            self._idle.pop(channel, None)
            self._busy[channel] = None
            channel.progress_s = time.monotonic()
        channel.waiting.append(sending)
        channel.coming.append(sending)
        if channel.connected and not channel.wants_room:
            self._pump(channel)

    def _choose(self, src: int, dst: int) -> Channel | str:
        """The channel to take, or why there is none."""
        channels = self._of_pair.get((src, dst), ())
        for channel in channels:
            if channel.idle:
                return channel
        if len(channels) < MOST_CHANNELS:
            taken = {channel.number for channel in channels}
            opened = self._open(src, dst, next(number for number in range(MOST_CHANNELS) if number not in taken))
            if isinstance(opened, Channel) or not channels:
                return opened
        return min(channels, key=lambda channel: len(channel.coming))

    def _numbered(self, src: int, dst: int, number: int) -> Channel | str:
        """The channel of that number, or why there is none."""
        known = next((one for one in self._of_pair.get((src, dst), ()) if one.number == number), None)
        return known or self._open(src, dst, number)

    def _open(self, src: int, dst: int, number: int) -> Channel | str:
        """A new channel, still to be connected, or why it can't be opened."""
        if self._count >= self._most and self._idle:
            self._close(next(iter(self._idle)))
        try:
            self._listen(dst, number)
            sender = self._socket(src, dst)
        except OSError as error:
            return f"{self._hosts[src].gpu_id} cannot open a connection to {self._hosts[dst].gpu_id}: {error.strerror}"
        code = sender.connect_ex((self._hosts[dst].address, FIRST_CHANNEL_PORT + number))
        channel = Channel(src, dst, number, sender, time.monotonic())
        if code not in (0, errno.EINPROGRESS):
            sender.close()
            return self._reason(channel, code)
        self._of_pair.setdefault((src, dst), []).append(channel)
        self._count += 1
        self._busy[channel] = None  # looked after until it is open
        self.watch(sender.fileno(), select.EPOLLOUT, lambda events: self._on_sender(channel, events))
        here = sender.getsockname()
        self._expected[dst, number, here[0], here[1]] = channel
        return channel

    def _socket(self, here: int, there: int) -> socket.socket:
        buffer_bytes = self._buffers[self._hosts[here].domain == self._hosts[there].domain]
        with inside_network_namespace(self._hosts[here].namespace_fd):
            opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened

    def _listen(self, rank: int, number: int) -> None:
        if (rank, number) in self._listeners:
            return
        with inside_network_namespace(self._hosts[rank].namespace_fd):
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)  # inherited by what it accepts
        listener.bind((self._hosts[rank].address, FIRST_CHANNEL_PORT + number))
        listener.listen(BACKLOG)
        self._listeners[rank, number] = listener
        self.watch(listener.fileno(), select.EPOLLIN, lambda _events: self._accept(listener, rank, number))

    def _accept(self, listener: socket.socket, rank: int, number: int) -> None:
        while True:
            try:
                receiver, peer = listener.accept()
            except OSError:
                return
            channel = self._expected.pop((rank, number, peer[0], peer[1]), None)
            if channel is None:  # given up in the meantime, or a stranger
                receiver.close()
                continue
            receiver.setblocking(False)
            channel.receiver = receiver
            self.watch(receiver.fileno(), select.EPOLLIN, lambda _events, channel=channel: self._on_receiver(channel))  # type: ignore[misc]
            self._check_open(channel)

    def _check_open(self, channel: Channel) -> None:
        """A channel is open when both its ends are."""
        if channel.connected or channel.receiver is None or channel.wants_room:
            return
        channel.connected = True
        channel.progress_s = time.monotonic()
        if channel.waiting:
            self._pump(channel)
        else:
            self._rest(channel)

    def _rest(self, channel: Channel) -> None:
        del self._busy[channel]
        self._idle[channel] = None

    def _on_sender(self, channel: Channel, events: int) -> None:
        if events & (select.EPOLLERR | select.EPOLLHUP):
            code = channel.sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._break(channel, self._reason(channel, code))
            return
        self._epoll.modify(channel.sender.fileno(), 0)
        channel.wants_room = False
        if channel.connected:
            self._pump(channel)
        else:
            self._check_open(channel)

    def _reason(self, channel: Channel, code: int) -> str:
        peer = self._hosts[channel.dst].gpu_id
        if code == errno.ECONNREFUSED:
            return f"connection refused by {peer}"
        text = os.strerror(code) if code else "the connection was closed"
        return f"connection to {peer}: {text}"

    def _pump(self, channel: Channel) -> None:
        """Give the kernel what it takes of the transfers that wait to be sent."""
        while channel.waiting:
            sending = channel.waiting[0]
            if sending.start_s is None:
                sending.start_s = time.monotonic()
            try:
                while sending.sent_bytes < sending.size_bytes:
                    sending.sent_bytes += channel.sender.send(_ZEROS[: sending.size_bytes - sending.sent_bytes])
            except BlockingIOError:
                self._epoll.modify(channel.sender.fileno(), select.EPOLLOUT)
                channel.wants_room = True
                return
            except OSError as error:
                self._break(channel, self._reason(channel, error.errno or 0))
                return
            channel.waiting.popleft()

    def _on_receiver(self, channel: Channel) -> None:
        assert channel.receiver is not None
        try:
            # MSG_TRUNC: TCP lets go of the bytes instead of copying them.
            count, ancillary, _, _ = channel.receiver.recvmsg_into([_SINK], _ANCILLARY_BYTES, socket.MSG_TRUNC)
        except BlockingIOError:
            return
        except OSError as error:
            self._break(channel, self._reason(channel, error.errno or 0))
            return
        if not count:
            self._break(channel, self._reason(channel, 0))
            return
        arrived_s = time.monotonic()
        if ancillary:
            seconds, nanoseconds = _TIMESTAMP.unpack(ancillary[0][2])
            arrived_s = min(arrived_s, seconds + nanoseconds / 1e9 - self._clock_offset_s)
        channel.progress_s = arrived_s
        while count and channel.coming:
            sending = channel.coming[0]
            taken = min(count, sending.size_bytes - sending.received_bytes)
            sending.received_bytes += taken
            count -= taken
            if sending.received_bytes == sending.size_bytes:
                self._complete(channel, sending, arrived_s)

    def _complete(self, channel: Channel, sending: Sending, arrived_s: float) -> None:
        channel.coming.popleft()
        assert sending.start_s is not None
        sending.end_s = max(arrived_s, sending.start_s)
        channel.messages += 1
        channel.size_bytes += sending.size_bytes
        channel.busy_s += sending.end_s - sending.start_s
        if channel.idle:
            self._rest(channel)
        self._ended(sending)

    def give_up_late(self) -> None:
        """Give up what has not moved for too long, or has passed its deadline, or does not connect."""
        now_s = time.monotonic()
        for channel in list(self._busy):
            gpu = self._hosts[channel.dst].gpu_id
            connect_s = min(CONNECT_TIMEOUT_S, self._give_up_s)
            if not channel.connected:
                if now_s - channel.opened_s > connect_s:
                    self._break(channel, f"no answer from {gpu} within {connect_s:g} s")
            elif now_s - channel.progress_s > self._give_up_s:
                self._break(channel, f"no byte arrived at {gpu} for {self._give_up_s:g} s")
            elif any(one.start_s is not None and now_s - one.start_s > one.allowed_s for one in channel.coming):
                self._break(channel, f"not at {gpu} by its deadline, though bytes still arrive")

    def _break(self, channel: Channel, reason: str) -> None:
        """Close a broken channel: what is on its way fails, what waits behind it takes another one."""
        coming = list(channel.coming)
        never_open = not channel.connected
        self._close(channel)
        for sending in coming:
            if sending.start_s is not None or never_open:
                self._failed(sending, reason)
            else:
                self.send(sending)

    def _close(self, channel: Channel) -> None:
        self._used.append(self._use(channel))
        pair = self._of_pair[channel.src, channel.dst]
        pair.remove(channel)
        if not pair:
            del self._of_pair[channel.src, channel.dst]
        self._count -= 1
        self._idle.pop(channel, None)
        self._busy.pop(channel, None)
        if channel.receiver is None:
            with suppress(OSError):
                here = channel.sender.getsockname()
                self._expected.pop((channel.dst, channel.number, here[0], here[1]), None)
        for one in (channel.sender, channel.receiver):
            if one is not None:
                self.unwatch(one.fileno())
                with suppress(OSError):  # nothing that is still queued may arrive later
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                one.close()
        channel.waiting.clear()
        channel.coming.clear()

    def _use(self, channel: Channel) -> ConnectionRecord:
        retransmits, rtt_s = 0, 0.0
        with suppress(OSError):
            info = channel.sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            retransmits = int.from_bytes(info[_TCP_INFO_RETRANSMITS : _TCP_INFO_RETRANSMITS + 4], "little")
            rtt_s = int.from_bytes(info[_TCP_INFO_RTT : _TCP_INFO_RTT + 4], "little") / 1e6
        return ConnectionRecord(
            channel.src, channel.dst, channel.number, channel.messages, channel.size_bytes, channel.busy_s,
            retransmits, rtt_s,
        )  # fmt: skip

    def used(self) -> list[ConnectionRecord]:
        """What every connection that carried something has carried so far, those that are closed included."""
        still_open = [self._use(channel) for channels in self._of_pair.values() for channel in channels]
        return [use for use in (*self._used, *still_open) if use.messages]
