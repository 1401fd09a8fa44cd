"""The one place that imports the controller framework: os-ken first, Ryu second. They share one API.

The environment variable RAILBED_FRAMEWORK (os-ken or ryu) forces one of them. Importing this module raises
FrameworkError if none is usable.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from controller.errors import FrameworkError

PACKAGES = {"os-ken": "os_ken", "ryu": "ryu"}
INSTALL = (
    "install os-ken with 'pip install os-ken', or on Python 3.10 or 3.11 Ryu with 'pip install ryu' under a build "
    "constraint of setuptools<67"
)

OPENFLOW_1_3 = 0x04


def _module(package: str, name: str) -> Any:
    return importlib.import_module(f"{package}.{name}")


def _prepare_ryu() -> None:
    """Make Ryu 4.34 importable: it wants a name that newer releases of eventlet no longer have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # eventlet announces its own deprecation at each import
        wsgi = importlib.import_module("eventlet.wsgi")
    if not hasattr(wsgi, "ALREADY_HANDLED"):
        wsgi.ALREADY_HANDLED = object()  # type: ignore[attr-defined]


def _chosen() -> str:
    """Name of the framework to use; raises FrameworkError if it is unknown, missing or broken."""
    forced = os.environ.get("RAILBED_FRAMEWORK")
    if forced and forced not in PACKAGES:
        raise FrameworkError(f"RAILBED_FRAMEWORK is '{forced}': it must be one of {', '.join(PACKAGES)}")
    failures = []
    for name in [forced] if forced else PACKAGES:
        try:
            if name == "ryu":
                _prepare_ryu()
            _module(PACKAGES[name], "base.app_manager")
        except (ImportError, AttributeError) as error:
            failures.append(f"{name} ({error})")
        else:
            return name
    raise FrameworkError(
        f"no controller framework can be imported by {sys.executable}: {'; '.join(failures)}; {INSTALL}"
    )


NAME = _chosen()
_PACKAGE = PACKAGES[NAME]

hub = _module(_PACKAGE, "lib.hub")
# Eventlet replaces blocking calls; without it (os-ken's native threads) this does nothing.
hub.patch(thread=False)

_app_manager = _module(_PACKAGE, "base.app_manager")
_handler = _module(_PACKAGE, "controller.handler")
_controller = _module(_PACKAGE, "controller.controller")
EventBase: Any = _module(_PACKAGE, "controller.event").EventBase
ofp_event = _module(_PACKAGE, "controller.ofp_event")
_Datapath: Any = _controller.Datapath
_Handshake: Any = _module(_PACKAGE, "controller.ofp_handler").OFPHandler
CONF = _module(_PACKAGE, "cfg").CONF

App: Any = _app_manager.OSKenApp if NAME == "os-ken" else _app_manager.RyuApp
AppManager: Any = _app_manager.AppManager
CONFIG = _handler.CONFIG_DISPATCHER
MAIN = _handler.MAIN_DISPATCHER
DEAD = _handler.DEAD_DISPATCHER


PROTOCOL = SimpleNamespace(
    ofproto=_module(_PACKAGE, "ofproto.ofproto_v1_3"), ofproto_parser=_module(_PACKAGE, "ofproto.ofproto_v1_3_parser")
)
"""OpenFlow 1.3's constants and message classes under the names of a connected switch; enough to build messages."""


def version() -> str:
    """Version of the framework in use."""
    return str(getattr(importlib.import_module(_PACKAGE), "version", "")) or _distribution_version()


def _distribution_version() -> str:
    metadata = importlib.import_module("importlib.metadata")
    return str(metadata.version(NAME))


def end_process(code: int) -> None:
    """End the process at once; both frameworks keep threads that would hold up an ordinary exit."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def handles(event: Any, *states: str) -> Callable[[Callable[[Any, Any], None]], Callable[[Any, Any], None]]:
    """Mark a method as the handler of ``event`` in ``states``.

    An exception in it ends the process with exit code 1: the frameworks would log it, or not even that, and go on.
    """

    def decorate(method: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        @functools.wraps(method)
        def guarded(self: Any, received: Any) -> None:
            try:
                method(self, received)
            except Exception as error:
                traceback.print_exc()
                self.failed(f"{method.__name__}: {type(error).__name__}: {error}")
                end_process(1)

        marked: Callable[[Any, Any], None] = _handler.set_ev_cls(event, list(states))(guarded)
        return marked

    return decorate


class _Connection(_Datapath):  # type: ignore[misc]
    """A switch's connection whose end is noticed at once.

    os-ken's native threads can't be killed: its sending thread would wait for ever for something to send, and the
    receiving one for it, so a lost switch would stay connected.
    """

    def _recv_loop(self) -> None:
        try:
            super()._recv_loop()
        finally:
            self.set_state(DEAD)
            self.send(b"", close_socket=True)


def _serve_switch(socket: Any, address: Any) -> None:
    with contextlib.closing(_Connection(socket, address)) as connection:
        connection.serve()


class Listener(_Handshake):  # type: ignore[misc]
    """The framework's OpenFlow handshake, behind a socket that we bind ourselves.

    The framework would bind in a thread of its own, where a busy port is an exception that nobody sees.
    """

    BACKLOG = 1024

    def __init__(self, host: str, port: int, listening: Callable[[], None]) -> None:
        """``listening`` is called once the socket listens."""
        super().__init__()
        self._address = (host, port)
        self._listening = listening

    def start(self) -> Any:
        """Listen; raises OSError if the address is taken. Returns the thread that accepts switches."""
        App.start(self)
        server = hub.StreamServer(self._address, _serve_switch)
        server.server.listen(self.BACKLOG)  # all switches of a fabric connect at once
        self._listening()
        return hub.spawn(server.serve_forever)


def run(app: type, host: str, port: int, listening: Callable[[Any], None], **arguments: Any) -> None:
    """Run the application class ``app`` (made with ``arguments``) for switches that connect to ``host:port``.

    ``listening`` is called with the application once the socket listens.
    Returns only if the listener ends, which is a failure; raises OSError if the address is taken.
    """
    manager = _manager()
    running = manager.instantiate(app, **arguments)
    manager.instantiate(Listener, host=host, port=port, listening=lambda: listening(running))
    hub.joinall(manager.instantiate_apps())


def run_file(file: str, observer: type, host: str, port: int, listening: Callable[[], None], **arguments: Any) -> None:
    """Run the application in a Python file as the framework's own program would, beside ``observer``.

    Returns only if the listener ends; raises OSError if the address is taken, FrameworkError if the file has no
    application, and whatever the file raises when it is imported.
    """
    manager = _manager()
    manager.load_apps([file])
    if not any(issubclass(cls, App) for name, cls in manager.applications_cls.items() if name == file):
        raise FrameworkError(f"{file} has no application: it must define a class derived from {App.__name__} of {NAME}")
    # Ours listens instead of the framework's.
    manager.applications_cls.pop(f"{_PACKAGE}.controller.ofp_handler", None)
    contexts = manager.create_contexts()
    manager.instantiate(observer, **arguments)
    manager.instantiate(Listener, host=host, port=port, listening=listening)
    hub.joinall(manager.instantiate_apps(**contexts))


def _manager() -> Any:
    CONF(args=[], project="railbed-controller", default_config_files=[], default_config_dirs=[])
    return AppManager.get_instance()
