"""Where the cases of a sweep are made: on all cores of this machine, on a Dask cluster, or live, one after another."""

from __future__ import annotations

import concurrent.futures
import importlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.errors import InterruptedExperimentError, SchedulerError, StageTimeoutError
from experiments.plan import Backend, simulator_backend
from experiments.run import Progress, resume_scenario, run_scenario
from experiments.sweep import Executor, Files, Made, SweepCase, sweep_scenario, write_case
from experiments.watchdog import STAGE_LIMIT_S
from topologies.errors import RailbedError

CONNECT_S = 10.0


def simulated_files(case: SweepCase, command: Sequence[str]) -> Files:
    """Make a case on the simulator; the files of its result. Raises RailbedError."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / case.name
        run_scenario(
            sweep_scenario(case), simulator_backend, _quiet, results_root=path.parent, folder_name=path.name,
            command=command, report=False,
        )  # fmt: skip
        return {str(one.relative_to(path)): one.read_bytes() for one in path.rglob("*") if one.is_file()}


def _quiet(stage: str, share: float | None) -> None:
    """Progress of one case, which nobody watches."""


def on_local_cores(command: Sequence[str], jobs: int | None = None) -> Executor:
    """Cases on the simulator, in ``jobs`` processes (as many as there are cores)."""

    def execute(cases: Sequence[SweepCase], folder: Path) -> Iterator[Made]:
        # Fresh processes, not forks: a fork would inherit the lock on the result's folder and outlive a crash with it.
        context = multiprocessing.get_context("spawn")
        lifeline, held = context.Pipe(duplex=False)
        workers = min(jobs or os.cpu_count() or 1, max(1, len(cases)))
        pool = concurrent.futures.ProcessPoolExecutor(workers, context, _end_with_parent, (lifeline,))
        try:
            running = {pool.submit(simulated_files, case, list(command)): case for case in cases}
            yield from _collected(running, folder)
        except BaseException:
            held.close()  # ends the workers, busy or not
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            held.close()
            lifeline.close()

    return execute


def _end_with_parent(lifeline: multiprocessing.connection.Connection) -> None:
    """In a worker: leave Ctrl-C to the parent, and end when it lets go of its end of the pipe, or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait() -> None:
        try:
            lifeline.recv()
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _collected(running: Mapping[concurrent.futures.Future[Files], SweepCase], folder: Path) -> Iterator[Made]:
    waiting = set(running)
    while waiting:
        ended, waiting = concurrent.futures.wait(waiting, STAGE_LIMIT_S, return_when=concurrent.futures.FIRST_COMPLETED)
        if not ended:
            raise StageTimeoutError(f"no case ended within {STAGE_LIMIT_S:g} s; the sweep was given up")
        for future in ended:
            case = running[future]
            yield case, _written(case, folder, future.result)


def _written(case: SweepCase, folder: Path, result: Callable[[], Files]) -> str | None:
    """Write what became of a case; the reason if it could not be made."""
    try:
        files = result()
    except RailbedError as error:
        return str(error)
    except concurrent.futures.process.BrokenProcessPool:
        return "the process that made it was ended, perhaps because memory ran out"
    write_case(folder / case.name, files)
    return None


def on_dask(address: str, command: Sequence[str]) -> Executor:
    """Cases on the simulator, on the Dask cluster whose scheduler is at ``address``.

    A case whose worker dies is made by another one. Raises SchedulerError where there is no scheduler, and where its
    workers lack Railbed, and ModuleNotFoundError where Dask is not installed here.
    """

    def execute(cases: Sequence[SweepCase], folder: Path) -> Iterator[Made]:
        dask: Any = importlib.import_module("distributed")
        try:
            client = dask.Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise SchedulerError(f"no Dask scheduler answers at {address} ({_first_line(error)})") from None
        with client:
            # No key twice: a case of an earlier sweep that the cluster still knows is not this one.
            running = {client.submit(simulated_files, case, list(command), pure=False): case for case in cases}
            try:
                for future in dask.as_completed(running, loop=client.loop, timeout=STAGE_LIMIT_S * max(1, len(cases))):
                    yield running[future], _fetched(running[future], folder, future)
                    future.release()
            except TimeoutError:
                raise StageTimeoutError(
                    f"the cluster at {address} took longer than {STAGE_LIMIT_S:g} s a case and was given up"
                ) from None
            finally:
                client.cancel(list(running))

    return execute


def _fetched(case: SweepCase, folder: Path, future: Any) -> str | None:
    killed: type[Exception] = importlib.import_module("distributed.scheduler").KilledWorker
    try:
        return _written(case, folder, future.result)
    except ModuleNotFoundError as error:
        raise SchedulerError(f"a worker lacks {error.name}: install the same Railbed there as here") from None
    except killed:
        return "every worker that tried to make it died"
    except (OSError, concurrent.futures.CancelledError) as error:
        raise SchedulerError(f"the Dask cluster was lost ({_first_line(error)}); resume the sweep later") from None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def in_turn(
    backend: Backend, progress: Progress, command: Sequence[str], extra_provenance: Callable[[], Mapping[str, Any]]
) -> Executor:
    """Cases on live fabrics, one after another: this machine is the experiment."""

    def execute(cases: Sequence[SweepCase], folder: Path) -> Iterator[Made]:
        for case in cases:
            yield case, _made_live(case, folder / case.name)

    def _made_live(case: SweepCase, path: Path) -> str | None:
        try:
            if (path / "summary.json").exists():
                resume_scenario(
                    path, backend, progress, command=command, extra_provenance=extra_provenance, report=False
                )
            else:
                run_scenario(
                    sweep_scenario(case), backend, progress, results_root=path.parent, folder_name=path.name,
                    command=command, extra_provenance=extra_provenance, report=False,
                )  # fmt: skip
        except InterruptedExperimentError:
            raise KeyboardInterrupt from None
        except RailbedError as error:
            return str(error)
        return None

    return execute
