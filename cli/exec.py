"""``railbed exec``: a real program on every GPU of a running fabric."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from cli.errors import NoSuchProgramError
from cli.fabrics import name_option, need_root, running_fabric

if TYPE_CHECKING:
    from emulator.programs import Launch, Sink
    from emulator.rank_environment import User
    from topologies.model import Fabric


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
@click.option("--port", default=29500, show_default=True, type=click.IntRange(1, 65535), help="MASTER_PORT.")
def command(
    words: tuple[str, ...],
    nproc: int | None,
    name: str | None,
    output: Path | None,
    timeout_s: float | None,
    mpi: bool,
    port: int,
) -> int:
    """Run COMMAND on every GPU of a running fabric, over that fabric's network.

    RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are set as PyTorch's launcher sets them; every GPU has a
    host name that the others can resolve. Ends with the exit code of the first rank that failed.
    """
    need_root("exec")
    from emulator.programs import run_programs

    running = running_fabric(name)
    fabric = running.fabric
    ranks = nproc or len(fabric.gpus)
    if ranks > len(fabric.gpus):
        raise click.UsageError(f"--nproc {ranks} is more than the {len(fabric.gpus)} GPUs of fabric '{running.name}'")
    _find(words[0])
    user = _invoker()
    launches = _launches(fabric, ranks, words, mpi, port, user)
    with ExitStack() as stack:
        sink = _printed() if output is None else _written(output, len(launches), user, stack)
        ending = run_programs(running, launches, sink, user=user, timeout_s=timeout_s)
    for note in ending.notes:
        click.echo(f"railbed: {note}", err=True)
    failed = ending.first_failure
    if failed is None:
        return 0
    click.echo(
        f"railbed: rank {failed.rank} ({launches[failed.rank].gpu_id}) ended first with exit code {failed.code}, "
        f"after {failed.after_s:.1f} s",
        err=True,
    )
    return failed.code


def _launches(
    fabric: Fabric, ranks: int, words: tuple[str, ...], mpi: bool, port: int, user: User | None
) -> list[Launch]:
    from emulator.programs import Launch
    from emulator.rank_environment import mpirun_words, rank_environment, user_environment

    base = user_environment(os.environ, user)
    if mpi:
        _find("mpirun")
        gpu_ids = [gpu.id for gpu in fabric.gpus[:ranks]]
        return [Launch(gpu_ids[0], mpirun_words(gpu_ids, words, as_root=user is None), base)]
    return [
        Launch(gpu.id, words, rank_environment(fabric.gpus[:ranks], rank, base, port))
        for rank, gpu in enumerate(fabric.gpus[:ranks])
    ]


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
