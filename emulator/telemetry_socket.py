"""The socket at which the ranks of a PyTorch job tell what they do."""

from __future__ import annotations

import json
import os
import selectors
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MESSAGE_BYTES = 1 << 20


class TelemetrySocket:
    """Listens at ``path`` from its making until :meth:`close`.

    What ranks tell waits in the kernel, in bounded buffers, until :meth:`poll`. What is no JSON object is dropped and
    counted in ``malformed``.
    """

    def __init__(self, path: Path, owner: tuple[int, int] | None) -> None:
        """``owner`` is the user and group that may tell, None for root alone."""
        self.path = path
        self.malformed = 0
        self.tellers = 0
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        path.chmod(0o600)
        if owner is not None:
            os.chown(path, *owner)
        self._listener.listen(socket.SOMAXCONN)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def poll(self) -> Iterator[dict[str, Any]]:
        """All that has been told and not read yet."""
        while ready := self._selector.select(0):
            for key, _ in ready:
                source = key.fileobj
                assert isinstance(source, socket.socket)
                if source is self._listener:
                    self.tellers += 1
                    self._selector.register(self._listener.accept()[0], selectors.EVENT_READ)
                    continue
                try:
                    packet = source.recv(_MESSAGE_BYTES)
                except ConnectionError:
                    packet = b""
                if not packet:
                    self._selector.unregister(source)
                    source.close()
                    continue
                try:
                    message = json.loads(packet)
                except ValueError:
                    message = None
                if isinstance(message, dict):
                    yield message
                else:
                    self.malformed += 1

    def close(self) -> None:
        """Take down the socket and the connections to it."""
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()
        self.path.unlink(missing_ok=True)
