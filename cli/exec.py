"""``railbed exec``: a real program on every GPU of a running fabric."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from cli.errors import NoSuchProgramError
from cli.fabrics import name_option, need_root, running_fabric
from topologies.model import Gpu, LinkKind

if TYPE_CHECKING:
    from emulator.manager import RunningFabric
    from emulator.programs import Launch, Sink
    from emulator.rank_environment import User
    from emulator.recovery import JobEvent


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, required=True, metavar="[--] COMMAND...", type=click.UNPROCESSED)
@click.option("--nproc", type=click.IntRange(min=1), metavar="N", help="On the first N GPUs.  [default: on all]")
@name_option
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write each rank's output to DIR/rankR.out and DIR/rankR.err instead of printing it.",
)
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.1), metavar="SECONDS", help="End all after that.")
@click.option("--mpi", is_flag=True, help="COMMAND is an MPI program: start it with Open MPI's mpirun.")
@click.option(
    "--restarts",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="Start a PyTorch job that fails or hangs again, up to N times.",
)
@click.option(
    "--spares",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="Keep N GPUs free for the ranks of GPUs that are lost.",
)
@click.option(
    "--telemetry",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write what the ranks of a PyTorch job tell of their collectives, and its timeline, into DIR.",
)
@click.option(
    "--hang-after",
    "hang_s",
    default=3.0,
    show_default=True,
    type=click.FloatRange(min=0.5),
    metavar="SECONDS",
    help="Without progress for so long a rank hangs.",
)
@click.option("--port", default=29500, show_default=True, type=click.IntRange(1, 65535), help="MASTER_PORT.")
def command(
    words: tuple[str, ...],
    nproc: int | None,
    name: str | None,
    output: Path | None,
    timeout_s: float | None,
    mpi: bool,
    restarts: int,
    spares: int,
    folder: Path | None,
    hang_s: float,
    port: int,
) -> int:
    """Run COMMAND on every GPU of a running fabric, over that fabric's network.

    RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are set as PyTorch's launcher sets them; every GPU has a
    host name that the others can resolve. Ends with the exit code of the first rank that failed.

    With --restarts a PyTorch job is cared for: its collectives are watched, a GPU that is at fault is taken out of
    service, its rank moves to a spare one, and the job is started again, to go on from its own checkpoint.
    """
    need_root("exec")
    from emulator.programs import run_programs
    from emulator.rank_environment import user_environment

    running = running_fabric(name)
    gpus, spare_gpus = _gpus(running, nproc, spares)
    _find(words[0])
    user = _invoker()
    base = user_environment(os.environ, user)
    cared_for = bool(restarts or folder)
    if mpi and cared_for:
        raise click.UsageError("--mpi goes with neither --restarts nor --telemetry: those are for PyTorch jobs")
    if bool(spares) != bool(restarts):
        raise click.UsageError(
            "--restarts and --spares go together: a rank is started again on another GPU than before"
        )
    with ExitStack() as stack:
        sink = _printed() if output is None else _written(output, 1 if mpi else len(gpus), user, stack)
        if cared_for:
            from emulator.supervise import Care, run_supervised

            care = Care(gpus, spare_gpus, restarts, hang_s, folder)
            ending = run_supervised(
                running, lambda places, count: _launches(places, words, base, port, count), care, sink, _told,
                user=user, timeout_s=timeout_s,
            )  # fmt: skip
        else:
            launches = _mpi_launches(gpus, words, base, user) if mpi else _launches(gpus, words, base, port)
            ending = run_programs(running, launches, sink, user=user, timeout_s=timeout_s)
    for note in ending.notes:
        click.echo(f"railbed: {note}", err=True)
    failed = ending.first_failure
    if failed is None:
        return 0
    click.echo(
        f"railbed: rank {failed.rank} ({failed.gpu_id}) ended first with exit code {failed.code}, "
        f"after {failed.after_s:.1f} s",
        err=True,
    )
    return failed.code


def _gpus(running: RunningFabric, nproc: int | None, spares: int) -> tuple[tuple[Gpu, ...], tuple[Gpu, ...]]:
    """The GPUs of the ranks, by default all that are no spares, and the spares after them; none is out of service."""
    fabric, drained = running.fabric, set(running.drained())
    links = {
        gpu: {link.id for link in fabric.links_of(gpu.switch_id) if link.kind is not LinkKind.HOST}
        for gpu in fabric.gpus
    }
    usable = tuple(gpu for gpu in fabric.gpus if not links[gpu] or links[gpu] - drained)
    ranks = len(usable) - spares if nproc is None else nproc
    if ranks < 1 or ranks + spares > len(usable):
        wanted = " with ".join(
            [*([f"--nproc {nproc}"] if nproc is not None else []), *([f"--spares {spares}"] if spares else [])]
        )
        out = len(fabric.gpus) - len(usable)
        service = f" in service ({out} are drained)" if out else ""
        raise click.UsageError(
            f"{wanted} is more than the {len(usable)} GPUs{service} of fabric '{running.name}' allow"
        )
    return usable[:ranks], usable[ranks : ranks + spares]


def _launches(
    gpus: Sequence[Gpu], words: tuple[str, ...], base: Mapping[str, str], port: int, restarts: int = 0
) -> list[Launch]:
    from emulator.programs import Launch
    from emulator.rank_environment import rank_environment

    return [Launch(gpu.id, words, rank_environment(gpus, rank, base, port, restarts)) for rank, gpu in enumerate(gpus)]


def _mpi_launches(
    gpus: Sequence[Gpu], words: tuple[str, ...], base: Mapping[str, str], user: User | None
) -> list[Launch]:
    from emulator.programs import Launch
    from emulator.rank_environment import mpirun_words

    _find("mpirun")
    gpu_ids = [gpu.id for gpu in gpus]
    return [Launch(gpu_ids[0], mpirun_words(gpu_ids, words, as_root=user is None), base)]


def _told(event: JobEvent) -> None:
    """A step of the job's timeline, on standard error; at its end what the failure cost."""
    click.echo(f"railbed: {event.line}", err=True)


def _find(program: str) -> None:
    """Raise NoSuchProgramError unless ``program`` can be started."""
    if shutil.which(program) is None:
        hint = "install the package openmpi-bin" if program == "mpirun" else "give its path, or correct the name"
        raise NoSuchProgramError(f"there is no program '{program}' that can be started here: {hint}")


def _invoker() -> User | None:
    """Whoever called sudo, None for root itself: a program needs no more rights than its user has."""
    from emulator.rank_environment import User

    uid = int(os.environ.get("SUDO_UID", "0"))
    if uid == 0:
        return None
    entry = pwd.getpwuid(uid)
    return User(uid, entry.pw_gid, entry.pw_name, entry.pw_dir)


def _printed() -> Sink:
    """A sink that prints every line after its rank, on the stream that it came from."""

    def show(rank: int, is_error: bool, line: bytes) -> None:
        stream = sys.stderr.buffer if is_error else sys.stdout.buffer
        stream.write(b"[%d] " % rank + line + (b"" if line.endswith((b"\n", b"\r")) else b"\n"))
        stream.flush()

    return show


def _written(folder: Path, ranks: int, user: User | None, stack: ExitStack) -> Sink:
    """A sink that writes every rank's two streams to files of their own below ``folder``, which belong to ``user``."""
    files: dict[tuple[int, bool], IO[bytes]] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for rank in range(ranks):
            for is_error, ending in ((False, "out"), (True, "err")):
                path = folder / f"rank{rank}.{ending}"
                files[rank, is_error] = stack.enter_context(path.open("wb"))
                if user is not None:
                    os.chown(path, user.uid, user.gid)
        if user is not None:
            os.chown(folder, user.uid, user.gid)
    except OSError as error:
        raise click.UsageError(f"--output {folder} cannot be written: {error.strerror}") from None

    def write(rank: int, is_error: bool, line: bytes) -> None:
        files[rank, is_error].write(line)

    return write
