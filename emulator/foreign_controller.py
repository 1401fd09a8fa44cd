"""Fabrics under somebody else's controller, or under none.

A controller outside the fabric's namespace is reached through a relay: switches connect to a socket inside, and what
they say is carried to a connection made in the machine's own namespace.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from emulator.controller_process import ControllerEvent
from emulator.errors import ControllerChoiceError, ControllerError
from emulator.kernel import inside_network_namespace

CONNECT_TIMEOUT_S = 5.0
CHUNK_BYTES = 1 << 16
BACKLOG = 1024


class ControllerKind(str, Enum):
    """Who controls a fabric."""

    RAILBED = "railbed"
    NONE = "none"
    ADDRESS = "address"
    FILE = "file"


@dataclass(frozen=True)
class ControllerChoice:
    """Who controls a fabric, and where: the address for ADDRESS, the path for FILE."""

    kind: ControllerKind
    text: str = ""

    @property
    def foreign(self) -> bool:
        """Whether it is not our own controller, so that nothing is known of what it does."""
        return self.kind is not ControllerKind.RAILBED

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of ADDRESS."""
        host, _, port = self.text.rpartition(":")
        return host, int(port)


def chosen_controller(text: str | None) -> ControllerChoice:
    """The choice that ``text`` means: None or "railbed", "none", HOST:PORT, or the path of a Python file.

    Raises ControllerChoiceError for anything else, and for a file that is not there.
    """
    if text in (None, "", "railbed"):
        return ControllerChoice(ControllerKind.RAILBED)
    assert text is not None
    if text == "none":
        return ControllerChoice(ControllerKind.NONE)
    if text.endswith(".py"):
        path = Path(text).resolve()
        if not path.is_file():
            raise ControllerChoiceError(f"there is no file {text}: --controller takes the path of an application")
        return ControllerChoice(ControllerKind.FILE, str(path))
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ControllerChoiceError(
            f"--controller is '{text}': it must be none, HOST:PORT (a port from 1 to 65535) or the path of a .py file"
        )
    return ControllerChoice(ControllerKind.ADDRESS, text)


class AbsentController:
    """Stands where the controller would: none at all, or one outside that is reached through a relay."""

    def __init__(self, connected: Callable[[], set[str]], relay: Relay | None) -> None:
        """``connected`` tells which switches have a controller."""
        self.events: list[ControllerEvent] = []
        self._connected = connected
        self._relay = relay

    def alive(self) -> bool:
        """Whether there is one, as far as anybody can know."""
        return bool(self._connected())

    def switches_connected(self) -> set[str]:
        """Ids of the switches that say that they are connected."""
        return self._connected()

    def wait_for(self, _wanted: object, _timeout_s: float, what: str, _since: int = 0) -> ControllerEvent:
        """Raise ControllerError: it tells nothing."""
        raise ControllerError(f"{what}: this fabric's controller is not Railbed's and tells nothing")

    def stop(self) -> None:
        """End the relay; the controller itself is somebody else's."""
        if self._relay is not None:
            self._relay.stop()


class Relay:
    """Carries connections to a port inside the fabric on to an address outside, in a thread of its own."""

    def __init__(self, port: int, address: tuple[str, int], namespace_fd: int) -> None:
        """Listen on 127.0.0.1:``port`` here; connect to ``address`` in ``namespace_fd``. Raises ControllerError."""
        self._address = address
        self._namespace_fd = namespace_fd
        self._connect().close()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._peer: dict[socket.socket, socket.socket] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="controller-relay", daemon=True)
        self._thread.start()

    def _connect(self) -> socket.socket:
        try:
            with inside_network_namespace(self._namespace_fd):
                return socket.create_connection(self._address, CONNECT_TIMEOUT_S)
        except OSError as error:
            host, port = self._address
            raise ControllerError(
                f"no controller answers at {host}:{port} ({error.strerror or error}): start it first, or name another "
                "--controller"
            ) from None

    def _carry(self) -> None:
        while not self._stopping.is_set():
            for key, _ in self._selector.select(0.2):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._peer:
                    self._pass_on(key.fileobj)

    def _accept(self) -> None:
        inside, _ = self._listener.accept()
        try:
            outside = self._connect()
        except ControllerError:
            inside.close()  # the switch tries again, by and by
            return
        outside.settimeout(None)
        for one, other in ((inside, outside), (outside, inside)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peer[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        data = b""
        with suppress(OSError):
            data = source.recv(CHUNK_BYTES)
            if data:
                self._peer[source].sendall(data)
                return
        for one in (source, self._peer[source]):
            self._selector.unregister(one)
            del self._peer[one]
            one.close()

    def stop(self) -> None:
        """Close everything."""
        self._stopping.set()
        self._thread.join()
        for one in (self._listener, *self._peer):
            one.close()
        self._selector.close()
