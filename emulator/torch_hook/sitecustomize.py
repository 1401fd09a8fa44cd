"""What a PyTorch job tells of its collectives, without a change to its code. Loaded by the job's own interpreter.

``railbed exec --telemetry`` puts this folder first on ``PYTHONPATH``. Once ``torch.distributed`` is imported its
collectives tell when the rank enters and leaves them; a thread tells what the kernel counts on the rank's connections.
Each message is one JSON object in one packet to the socket that RAILBED_TELEMETRY_SOCKET names.

Only the standard library is used, as the job's interpreter may be any. A job is never stopped or slowed by a reader
that does not follow: what cannot be sent at once is dropped, and the next message says how many were. Nothing that
goes wrong here reaches the job.
"""

from __future__ import annotations

import fcntl
import functools
import importlib.abc
import importlib.util
import json
import os
import socket
import stat
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

SOCKET_VARIABLE = "RAILBED_TELEMETRY_SOCKET"
Message = dict[str, Any]
Described = Callable[["tuple[Any, ...]", Message], "Message | None"]
SAMPLE_S = 0.5
"""How often the connections' counters are told."""

# Name of the function: what Railbed calls the collective, and the place and name of the tensor or list of this rank.
COLLECTIVES = {
    "all_reduce": ("all-reduce", 0, "tensor"),
    "broadcast": ("broadcast", 0, "tensor"),
    "reduce": ("reduce", 0, "tensor"),
    "all_gather": ("all-gather", 1, "tensor"),
    "all_gather_into_tensor": ("all-gather", 1, "input_tensor"),
    "_all_gather_base": ("all-gather", 1, "input_tensor"),
    "gather": ("gather", 0, "tensor"),
    "scatter": ("scatter", 0, "tensor"),
    "reduce_scatter": ("reduce-scatter", 1, "input_list"),
    "reduce_scatter_tensor": ("reduce-scatter", 1, "input"),
    "_reduce_scatter_base": ("reduce-scatter", 1, "input"),
    "all_to_all": ("all-to-all", 1, "input_tensor_list"),
    "all_to_all_single": ("all-to-all", 1, "input"),
    "barrier": ("barrier", 0, ""),
}
POINT_TO_POINT = {"send": ("dst", True), "isend": ("dst", True), "recv": ("src", False), "irecv": ("src", False)}
"""Name of the function: the parameter that names the other rank, and whether this one sends."""


class Teller:
    """Sends messages to the collector, or drops them; safe from several threads."""

    def __init__(self, path: str) -> None:
        """Connect to the collector; raises OSError where there is none."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        self._socket.connect(path)
        self._lock = threading.Lock()
        self._dropped = 0
        # A forked child shares the socket but is no rank.
        os.register_at_fork(after_in_child=self.close)

    def close(self) -> None:
        """Tell nothing from now on."""
        self._lock = threading.Lock()
        self._socket.close()

    def tell(self, message: Message) -> None:
        """Send one message now, or count it as dropped."""
        with self._lock:
            if self._dropped:
                message["dropped"] = self._dropped
            try:
                self._socket.send(json.dumps(message, separators=(",", ":")).encode())
                self._dropped = 0
            except OSError:
                self._dropped += 1


class Calls:
    """Wraps the functions of ``torch.distributed``; ``rank`` is that of the job."""

    def __init__(self, teller: Teller, distributed: Any, rank: int) -> None:
        """Nothing is wrapped yet."""
        self._teller = teller
        self._module = distributed.distributed_c10d
        self._rank = rank
        self._inside = threading.local()
        self._lock = threading.Lock()
        self._groups: dict[Any, str] = {}
        self._next: dict[str, int] = {}

    def wrap(self, name: str, described: Described) -> Callable[..., Any]:
        """The function of that name, which tells of itself; ``described`` gives what is told, from its arguments."""
        original = getattr(self._module, name)

        @functools.wraps(original)
        def told(*arguments: Any, **named: Any) -> Any:
            if getattr(self._inside, "deep", False):
                return original(*arguments, **named)  # part of a call that has told
            operation = None
            with suppress(Exception):
                operation = described(arguments, named)
            if operation is None:
                return original(*arguments, **named)
            self._inside.deep = True
            try:
                operation["entered_s"] = time.monotonic()
                self._teller.tell(dict(operation))
                work = original(*arguments, **named)
            finally:
                self._inside.deep = False
            # A call that raised is left open: what has become of it nobody knows, and its process will tell.
            if work is None or not hasattr(work, "get_future"):
                self._leave(operation)
            else:
                try:
                    work.get_future().add_done_callback(lambda _future: self._leave(operation))
                except Exception:  # this back end has no futures: it is told as if it ended at once
                    self._leave(operation)
            return work

        return told

    def _leave(self, operation: Message) -> None:
        with suppress(Exception):
            self._teller.tell({**operation, "left_s": time.monotonic()})

    def collective(self, kind: str, place: int, name: str) -> Described:
        """Describes a collective by its arguments."""

        def described(arguments: tuple[Any, ...], named: dict[str, Any]) -> Message | None:
            communicator = self._communicator(named.get("group", _group_among(arguments)))
            size_bytes = 0
            if name:
                value = named[name] if name in named else arguments[place]
                size_bytes = _bytes(value)
            return self._operation(communicator, kind, size_bytes)

        return described

    def point_to_point(self, peer_name: str, sends: bool) -> Described:
        """Describes a send or a receive: an operation of the two ranks' own; None for a receive from anybody."""

        def described(arguments: tuple[Any, ...], named: dict[str, Any]) -> Message | None:
            peer = named.get(peer_name, arguments[1] if len(arguments) > 1 else None)
            if peer is None:
                return None
            src, dst = (self._rank, peer) if sends else (peer, self._rank)
            tag = named.get("tag", 0)
            communicator = self._tell_group(f"p2p {src}>{dst} tag {tag}", (src, dst))
            return self._operation(communicator, "send-recv", _bytes(named.get("tensor", arguments[:1])))

        return described

    def _operation(self, communicator: str, kind: str, size_bytes: int) -> Message:
        with self._lock:
            sequence = self._next[communicator] = self._next.get(communicator, -1) + 1
        return {"layer": "operation", "communicator": communicator, "sequence": sequence, "rank": self._rank,
                "kind": kind, "algorithm": "unknown", "size_bytes": size_bytes}  # fmt: skip

    def _communicator(self, group: Any) -> str:
        """The id of a process group, told when it is new; raises where this rank is not in it."""
        module = self._module
        group = group if group is not None and group is not module.GroupMember.WORLD else module._get_default_group()
        found = self._groups.get(group)
        if found is None:
            ranks = tuple(module.get_process_group_ranks(group)) if group is not module._get_default_group() else tuple(
                range(module.get_world_size())
            )  # fmt: skip
            if self._rank not in ranks:
                raise ValueError(self._rank)
            world = getattr(module, "_world", None)
            names = getattr(world, "pg_names", None) or getattr(module, "_pg_names", {})
            found = self._groups[group] = self._tell_group(f"group {names.get(group, len(self._groups))}", ranks)
        return found

    def _tell_group(self, identity: str, ranks: tuple[int, ...]) -> str:
        with self._lock:
            is_new = identity not in self._next
            self._next.setdefault(identity, -1)
        if is_new:
            self._teller.tell({"layer": "communicator", "id": identity, "ranks": ranks})
        return identity


def _group_among(arguments: tuple[Any, ...]) -> Any:
    for value in arguments:
        if type(value).__name__.startswith("ProcessGroup"):
            return value
    return None


def _bytes(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return sum(_bytes(one) for one in value)
    return int(value.numel() * value.element_size()) if hasattr(value, "numel") else 0


def wrap_distributed(distributed: Any, teller: Teller) -> None:
    """Let the collectives of ``torch.distributed`` tell of themselves."""
    if not distributed.is_available() or "RANK" not in os.environ:
        return
    calls = Calls(teller, distributed, int(os.environ["RANK"]))
    described = {name: calls.collective(*what) for name, what in COLLECTIVES.items()}
    described.update({name: calls.point_to_point(*what) for name, what in POINT_TO_POINT.items()})
    wrapped = {
        name: calls.wrap(name, how) for name, how in described.items() if hasattr(distributed.distributed_c10d, name)
    }
    for module in (distributed, distributed.distributed_c10d):
        for name, function in wrapped.items():
            if hasattr(module, name):
                setattr(module, name, function)
    threading.Thread(target=watch_connections, args=(teller,), name="railbed-telemetry", daemon=True).start()


def wrap_data_parallel(module: Any) -> None:
    """Let the gradients of DistributedDataParallel go through a function that tells of itself.

    Its own all-reduces never pass through Python. A communication hook that does the same arithmetic does; where the
    job has registered one of its own, that one stays.
    """
    parallel = module.DistributedDataParallel
    own_forward, own_register = parallel.forward, parallel.register_comm_hook
    own_builtin = getattr(parallel, "_register_builtin_comm_hook", None)

    def mean(process_group: Any, bucket: Any) -> Any:
        distributed = sys.modules["torch.distributed"]

        tensor = bucket.buffer()
        tensor.mul_(1.0 / process_group.size())  # as the reducer scales, to the last bit
        work = distributed.all_reduce(tensor, group=process_group, async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    mean.__annotations__.clear()  # torch refuses a hook with other annotations than its own

    @functools.wraps(own_forward)
    def forward(self: Any, *inputs: Any, **named: Any) -> Any:
        if not getattr(self, "_railbed_hooked", False):
            self._railbed_hooked = True
            with suppress(Exception):
                own_register(self, self.process_group, mean)
        return own_forward(self, *inputs, **named)

    def marked(register: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(register)
        def marking(self: Any, *arguments: Any, **named: Any) -> Any:
            self._railbed_hooked = True
            return register(self, *arguments, **named)

        return marking

    parallel.forward = forward
    parallel.register_comm_hook = marked(own_register)
    if own_builtin is not None:
        parallel._register_builtin_comm_hook = marked(own_builtin)


def watch_connections(teller: Teller) -> None:
    """Tell twice a second what the kernel counts on this process's TCP connections, by the other end's address."""
    rank, store_port = int(os.environ["RANK"]), int(os.environ.get("MASTER_PORT", "0"))
    pause = threading.Event()
    with suppress(Exception):
        while not pause.wait(SAMPLE_S):
            for address, counted in connections(store_port).items():
                teller.tell({"layer": "connection", "rank": rank, "address": address, "t_s": time.monotonic(),
                             **counted})  # fmt: skip


def connections(store_port: int) -> dict[str, dict[str, int]]:
    """By address of the other end, counters summed over this process's TCP connections; the job's store is left out."""
    found: dict[str, dict[str, int]] = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError, struct.error):
            number = int(name)
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as copy:
                if copy.family not in (socket.AF_INET, socket.AF_INET6) or copy.type != socket.SOCK_STREAM:
                    continue
                address, port = copy.getpeername()[:2]
                if store_port in (port, copy.getsockname()[1]):
                    continue
                info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
                pending = struct.unpack("i", fcntl.ioctl(number, termios.TIOCOUTQ, b"\0" * 4))[0]
            # struct tcp_info of linux/tcp.h: tcpi_total_retrans at 100, tcpi_bytes_acked and _received at 120.
            retransmits, acknowledged, received = struct.unpack_from("=I16xQQ", info, 100)
            sums = found.setdefault(address.removeprefix("::ffff:"), dict.fromkeys(
                ("acknowledged_bytes", "received_bytes", "pending_bytes", "retransmits"), 0))  # fmt: skip
            sums["acknowledged_bytes"] += acknowledged
            sums["received_bytes"] += received
            sums["pending_bytes"] += pending
            sums["retransmits"] += retransmits
    return found


class AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Runs an action right after a module has been imported."""

    def __init__(self, actions: dict[str, Callable[[Any], None]]) -> None:
        """``actions`` by the name of a module; each takes the module."""
        self._actions = actions
        self._loaders: dict[str, Any] = {}

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a wanted module as everybody else would, and load it with us in between."""
        if name not in self._actions or name in self._loaders:
            return None
        self._loaders[name] = None  # the search below comes here again
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            del self._loaders[name]
            return None
        self._loaders[name], spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> Any:
        """As the module's own loader does."""
        return self._loaders[spec.name].create_module(spec)

    def exec_module(self, module: Any) -> None:
        """As the module's own loader does; then the action."""
        name = module.__name__
        module.__spec__.loader = module.__loader__ = self._loaders[name]
        self._loaders[name].exec_module(module)
        with suppress(Exception):
            self._actions[name](module)


def start() -> None:
    """Get ready for torch, where a collector is there."""
    path = os.environ.get(SOCKET_VARIABLE)
    if path is None:
        return
    with suppress(OSError):
        teller = Teller(path)
        sys.meta_path.insert(
            0,
            AfterImport(
                {
                    "torch.distributed": lambda module: wrap_distributed(module, teller),
                    "torch.nn.parallel.distributed": wrap_data_parallel,
                }
            ),
        )


def run_the_next() -> None:
    """Run the ``sitecustomize`` that this one hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in sys.path:
        path = os.path.join(folder or ".", "sitecustomize.py")
        if os.path.abspath(folder or ".") != here and os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                exec(compile(file.read(), path, "exec"), {"__name__": "sitecustomize", "__file__": path})
            return


if __name__ == "sitecustomize":
    start()
    run_the_next()
