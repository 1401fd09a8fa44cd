"""What a program on an emulated GPU is told: its rank, whom to meet, and the names of the others. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator.names import HOST_INTERFACE
from topologies.addresses import ipv4
from topologies.model import Fabric, Gpu

DEFAULT_MASTER_PORT = 29500
"""The port that PyTorch's own launcher takes. Every GPU has ports of its own, so nothing else can hold it."""

DEFAULTS = {
    # One thread per rank, as PyTorch's own launcher does: many ranks share this machine's cores.
    "OMP_NUM_THREADS": "1",
    # Output goes to a pipe; a script's lines should be seen when they are printed.
    "PYTHONUNBUFFERED": "1",
}
"""Set only where the user has not set them."""


CALLERS_PYTHONPATH = "RAILBED_CALLERS_PYTHONPATH"
"""Where the launcher keeps the user's ``PYTHONPATH``, which Railbed itself runs without."""

RESOLVER_FILE = "# Railbed: an emulated GPU has no name server, only /etc/hosts\n"
"""The text of ``/etc/resolv.conf`` on every GPU: a lookup fails at once instead of waiting for a far server."""


@dataclass(frozen=True)
class User:
    """Whom a program runs as; ``home`` and ``name`` are for its environment."""

    uid: int
    gid: int
    name: str
    home: str


def hosts_file(fabric: Fabric) -> str:
    """The text of ``/etc/hosts`` on every GPU: each GPU's id is the name of its address."""
    lines = ["127.0.0.1 localhost", *(f"{ipv4(gpu.domain, gpu.rail)} {gpu.id}" for gpu in fabric.gpus)]
    return "\n".join(lines) + "\n"


def rank_environment(
    gpus: Sequence[Gpu], rank: int, base: Mapping[str, str], port: int = DEFAULT_MASTER_PORT, restarts: int = 0
) -> dict[str, str]:
    """The environment of one of a job's programs, made from the user's own (``base``).

    ``gpus`` are those of the ranks, in order. Local ranks are places in the HB domain, by rail among the job's GPUs in
    it, as on a server with one process per GPU. The names are those that PyTorch's and Open MPI's launchers set.
    ``restarts`` is how often the job has been started again.
    """
    gpu = gpus[rank]
    rails = sorted(one.rail for one in gpus if one.domain == gpu.domain)
    local_rank, local_size = rails.index(gpu.rail), len(rails)
    numbers = {
        "RANK": rank,
        "WORLD_SIZE": len(gpus),
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": local_size,
        "NODE_RANK": gpu.domain,
        "GROUP_RANK": gpu.domain,
        "MASTER_PORT": port,
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_SIZE": len(gpus),
        "OMPI_COMM_WORLD_LOCAL_RANK": local_rank,
        "OMPI_COMM_WORLD_LOCAL_SIZE": local_size,
        "OMPI_COMM_WORLD_NODE_RANK": local_rank,
        "TORCHELASTIC_RESTART_COUNT": restarts,
    }
    return {
        **DEFAULTS,
        **base,
        **{name: str(number) for name, number in numbers.items()},
        "MASTER_ADDR": gpus[0].id,
        "GLOO_SOCKET_IFNAME": HOST_INTERFACE,
        "TP_SOCKET_IFNAME": HOST_INTERFACE,
        "NCCL_SOCKET_IFNAME": HOST_INTERFACE,
        "HOSTNAME": gpu.id,
        "RAILBED_GPU": gpu.id,
    }


def user_environment(base: Mapping[str, str], user: User | None) -> dict[str, str]:
    """``base`` as ``user`` (None: root) would have it: its home and name, the Python path that the launcher took."""
    found = {name: value for name, value in base.items() if name != CALLERS_PYTHONPATH}
    if CALLERS_PYTHONPATH in base:
        found["PYTHONPATH"] = base[CALLERS_PYTHONPATH]
    if user is not None:
        found.update({"HOME": user.home, "USER": user.name, "LOGNAME": user.name})
    return found


def mpirun_words(gpu_ids: Sequence[str], words: Sequence[str], as_root: bool) -> tuple[str, ...]:
    """The command line by which Open MPI's mpirun, on the first GPU, starts ``words`` once on each of ``gpu_ids``.

    Its remote shell is ours; all traffic goes over TCP on the GPUs' one interface. ``as_root`` allows what mpirun
    refuses root.
    """
    shell = f"{sys.executable} {Path(__file__).with_name('remote_shell.py')}"
    settings = {
        "plm_rsh_agent": shell,
        "btl": "tcp,self",
        "pml": "ob1",
        "btl_tcp_if_include": HOST_INTERFACE,
        "oob_tcp_if_include": HOST_INTERFACE,
    }
    options = [word for name, value in settings.items() for word in ("--mca", name, value)]
    root = ["--allow-run-as-root"] if as_root else []
    return ("mpirun", *root, *options, "--host", ",".join(gpu_ids), "-np", str(len(gpu_ids)), *words)
