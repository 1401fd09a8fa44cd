"""A PyTorch job that is cared for: watched, diagnosed, moved away from a lost GPU, and started again; without a hand.

The job has to checkpoint, and to go on from its newest checkpoint by itself when it is started again.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from controller.diagnosis.network import Network
from controller.diagnosis.telemetry import RankOperation, to_dict
from controller.diagnosis.thresholds import DEFAULT
from controller.diagnosis.verdict import ComponentKind, Syndrome, Verdict
from controller.diagnosis.watch import Watch
from controller.errors import TelemetryError
from controller.routing import Routes
from emulator.errors import ProgramError
from emulator.hook_reader import HookReader
from emulator.manager import Lease, RunningFabric
from emulator.programs import Ending, Launch, ProgramGroup, Sink, prepared
from emulator.rank_environment import User
from emulator.rank_keeper import Places
from emulator.recovery import JobEvent, Step, culprit, gpu_at_fault, pick_spare
from emulator.telemetry_socket import TelemetrySocket
from topologies.addresses import ipv4
from topologies.model import Gpu

HOOK_FOLDER = Path(__file__).with_name("torch_hook")
SOCKET_VARIABLE = "RAILBED_TELEMETRY_SOCKET"
HANGS = (Syndrome.COMMUNICATION_HANG, Syndrome.NON_COMMUNICATION_HANG)
WINDOW_S = 10.0
"""How far back the diagnosis of a job looks."""

SILENT_S = 1.0
"""So much longer than a hang must a rank have told nothing: it tells something twice a second."""

LaunchesFor = Callable[[Sequence[Gpu], int], list[Launch]]
"""The programs of a start, for the GPUs of the ranks and the number of restarts before it."""


@dataclass(frozen=True)
class Care:
    """How a job is cared for.

    ``gpus`` are those of the ranks at first, ``spares`` such without a rank. Up to ``restarts`` times the job is
    started again; with 0 it is only watched. A rank hangs that makes no progress for ``hang_s``. ``folder`` takes
    ``telemetry.jsonl`` and ``events.jsonl``; None keeps neither.
    """

    gpus: tuple[Gpu, ...]
    spares: tuple[Gpu, ...] = ()
    restarts: int = 0
    hang_s: float = 3.0
    folder: Path | None = None


def run_supervised(
    running: RunningFabric,
    launches_for: LaunchesFor,
    care: Care,
    sink: Sink,
    told: Callable[[JobEvent], None],
    *,
    user: User | None = None,
    timeout_s: float | None = None,
) -> Ending:
    """Run a job until it ends well or can't be started again; ``told`` hears its timeline as it happens.

    Raises what :func:`emulator.programs.run_programs` raises, and ProgramError for a hang that nothing can be done
    about. ``timeout_s`` bounds the whole, restarts included.
    """
    with running.lease() as lease, ExitStack() as stack:
        places, socket_path = prepared(running, lease, user, stack)
        job = _Job(running, launches_for, care, sink, told, _files(care.folder, user, stack))
        ending = job.run(lease, places, socket_path, timeout_s)
        ending.notes += lease.give_back()
    return ending


def _files(folder: Path | None, user: User | None, stack: ExitStack) -> dict[str, IO[str]]:
    """The files to be written, by what goes into them; raises ProgramError where they can't be."""
    if folder is None:
        return {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files: dict[str, IO[str]] = {
            name: stack.enter_context((folder / f"{name}.jsonl").open("w", encoding="utf-8", buffering=1))
            for name in ("telemetry", "events")
        }
        if user is not None:
            for path in (folder, *(folder / f"{name}.jsonl" for name in files)):
                os.chown(path, user.uid, user.gid)
    except OSError as error:
        raise ProgramError(f"{folder} cannot be written: {error.strerror}; choose another folder") from None
    return files


class _Job:
    """One job over all its starts."""

    def __init__(
        self,
        running: RunningFabric,
        launches_for: LaunchesFor,
        care: Care,
        sink: Sink,
        told: Callable[[JobEvent], None],
        files: Mapping[str, IO[str]],
    ) -> None:
        self.running = running
        self.fabric = running.fabric
        self.files = files
        self.care = care
        self.restarts = 0
        self.gpus = list(care.gpus)
        self._launches_for = launches_for
        self._sink = sink
        self._told = told
        self._spares = list(care.spares)
        self._started_s = time.monotonic()

    def tell(self, step: Step, at_s: float, text: str, gpu: Gpu | None = None, **details: Any) -> None:
        """Add a step to the timeline; ``at_s`` is of the monotonic clock."""
        event = JobEvent(step, round(at_s - self._started_s, 4), self.restarts, text, gpu.id if gpu else "", details)
        if "events" in self.files:
            self.files["events"].write(json.dumps(event.to_dict()) + "\n")
        self._told(event)

    def run(self, lease: Lease, places: Places, socket_path: Path, timeout_s: float | None) -> Ending:
        """Start it, and again as often as that helps."""
        self._started_s = time.monotonic()
        self.tell(Step.STARTED, self._started_s, f"{len(self.gpus)} ranks, {len(self._spares)} spare GPUs")
        while True:
            left_s = None if timeout_s is None else max(0.001, self._started_s + timeout_s - time.monotonic())
            with ExitStack() as stack:
                start = _Start(self, lease.run_path / f"telemetry-{os.getpid()}.sock", places.user)
                stack.callback(start.socket.close)
                launches = [_hooked(one, start.socket.path) for one in self._launches_for(self.gpus, self.restarts)]
                socket_path.unlink(missing_ok=True)
                group = ProgramGroup(places, launches, socket_path, self._sink)
                stack.callback(group.end)
                group.watch(lease, left_s, start.is_in_trouble)
                start.take_all()
                trouble = start.trouble or self._ended_badly(group)
                if trouble is None or not self.care.restarts:
                    group.end()
                    group.ending.notes += start.notes()
                    return group.ending
                self._react(trouble, group)
            self.restarts += 1
            self.tell(Step.RESTARTED, time.monotonic(), f"all {len(self.gpus)} ranks are started again")

    def _ended_badly(self, group: ProgramGroup) -> _Trouble | None:
        """What is to be done about a rank that has failed by itself."""
        failed = culprit(group.ending.exits[: group.asked_after])
        if failed is None:
            return None
        gpu, at_s = self.gpus[failed.rank], group.started_s + failed.after_s
        said = f"rank {failed.rank} on {gpu.id} ended with exit code {failed.code}"
        self.tell(Step.FAILED, at_s, said, gpu)
        self.tell(Step.DETECTED, time.monotonic(), "its end was reported", gpu)
        self.tell(Step.DIAGNOSED, time.monotonic(), said, gpu)
        return _Trouble(gpu, said)

    def _react(self, trouble: _Trouble, group: ProgramGroup) -> None:
        """Take the GPU out of service and give its rank another; raises ProgramError where that can't be."""
        if self.restarts >= self.care.restarts:
            self._give_up(trouble, group, f"all {self.care.restarts} restarts are used up")
        if trouble.gpu is not None:
            spare = pick_spare(trouble.gpu, self._spares)
            if spare is None:
                self._give_up(trouble, group, "no spare GPU is left")
            assert spare is not None
            drained = self.running.drain(trouble.gpu.id)
            rank = self.gpus.index(trouble.gpu)
            self._spares.remove(spare)
            self.gpus[rank] = spare
            text = f"{trouble.gpu.id} is out of service; rank {rank} moves to {spare.id}"
            self.tell(Step.ISOLATED, time.monotonic(), text, trouble.gpu, spare=spare.id, rank=rank, drain=drained)
        else:
            self.tell(
                Step.ISOLATED, time.monotonic(), "no single component is known to be at fault; nothing is taken out"
            )
        group.ask_to_end(signal.SIGTERM)

    def _give_up(self, trouble: _Trouble, group: ProgramGroup, why: str) -> None:
        self.tell(Step.GIVEN_UP, time.monotonic(), why, trouble.gpu)
        group.ask_to_end(signal.SIGTERM)
        raise ProgramError(f"{trouble.text}; {why}, so the job was ended")


@dataclass(frozen=True)
class _Trouble:
    """What ended a start: the GPU that is lost, if it is known, and what happened in words."""

    gpu: Gpu | None
    text: str


class _Start:
    """One start of the job, as its telemetry shows it."""

    def __init__(self, job: _Job, path: Path, user: User | None) -> None:
        self.trouble: _Trouble | None = None
        self.socket = TelemetrySocket(path, None if user is None else (user.uid, user.gid))
        self._job = job
        fabric = job.fabric
        addresses = {ipv4(gpu.domain, gpu.rail): number for number, gpu in enumerate(fabric.gpus)}
        prefix = f"restart {job.restarts}: " if job.restarts else ""
        self._reader = HookReader([fabric.rank(gpu) for gpu in job.gpus], addresses, prefix)
        routes = Routes(fabric, policy=job.running.policy())
        limits = replace(DEFAULT, hang_s=job.care.hang_s, window_s=WINDOW_S)
        self._watch = Watch(Network(routes, job.running.scale), limits)
        self._suspected_s: float | None = None
        self._left: dict[tuple[str, int], int] = {}
        self._is_back = not job.restarts
        self._unreadable = 0

    def take_all(self) -> None:
        """Read all that the ranks have told."""
        for message in self.socket.poll():
            try:
                item = self._reader.read(message)
            except TelemetryError:
                self._unreadable += 1
                continue
            if item is None:
                continue
            self._watch.take([item])
            if "telemetry" in self._job.files:
                self._job.files["telemetry"].write(json.dumps(to_dict(item)) + "\n")
            if not self._is_back and isinstance(item, RankOperation) and item.left_s is not None:
                self._note_left(item, item.left_s)

    def _note_left(self, item: RankOperation, left_s: float) -> None:
        """The job is back once all its ranks have made an operation together."""
        key = item.communicator, item.sequence
        self._left[key] = self._left.get(key, 0) + 1
        if self._left[key] == len(self._job.gpus):
            self._is_back = True
            self._job.tell(Step.BACK, left_s, f"all ranks have made their first {item.kind} since")

    def is_in_trouble(self) -> bool:
        """Whether the job hangs and has to be started again."""
        self.take_all()
        now_s = time.monotonic()
        if self._reader.waits_s(now_s) < self._job.care.hang_s:
            self._suspected_s = None
            return False  # nothing hangs, and a look costs time that the job could use
        alarms = self._watch.look(now_s)
        hangs = [one for one in (self._watch.latest.verdicts if self._watch.latest else ()) if one.syndrome in HANGS]
        if not hangs:
            self._suspected_s = None
        elif self._suspected_s is None:
            self._suspected_s = now_s
        for alarm in alarms:
            if alarm.verdict.syndrome in HANGS and self.trouble is None:
                self._note_hang(alarm.verdict, now_s)
        self._look_for_frozen(now_s)
        return self.trouble is not None and bool(self._job.care.restarts)

    def _look_for_frozen(self, now_s: float) -> None:
        """A rank that has stopped in the middle of a collective may leave no byte on its way, but it is silent."""
        frozen = self._reader.frozen(now_s, self._job.care.hang_s + SILENT_S) if self.trouble is None else None
        if frozen is None:
            return
        gpu, heard_s = self._job.fabric.gpu_of_rank(frozen[0]), frozen[1]
        said = f"{Syndrome.NON_COMMUNICATION_HANG.value}: {gpu.id} has told nothing for {now_s - heard_s:.2f} s"
        self._job.tell(Step.FAILED, heard_s, "its rank was heard of for the last time", gpu)
        self._job.tell(Step.DETECTED, now_s, "the others wait", gpu)
        self._job.tell(Step.DIAGNOSED, now_s, said, gpu)
        self.trouble = _Trouble(gpu, said)

    def _note_hang(self, verdict: Verdict, now_s: float) -> None:
        job = self._job
        gpu = gpu_at_fault(verdict, job.fabric)
        failed_s, how = self._failed_s(verdict, gpu)
        job.tell(Step.FAILED, failed_s, how, gpu)
        job.tell(Step.DETECTED, self._suspected_s or now_s, f"no progress for {job.care.hang_s:g} s", gpu)
        job.tell(Step.DIAGNOSED, now_s, f"{verdict.text}: {verdict.evidence.text}", gpu, verdict=verdict.to_dict())
        if gpu is None and verdict.component.kind in (ComponentKind.LINK, ComponentKind.SWITCH):
            # A part of the network that several GPUs share: with traffic led around it the job goes on by itself.
            if job.care.restarts:
                job.running.drain(verdict.component.id)
                job.tell(Step.ISOLATED, time.monotonic(), f"{verdict.component.id} is out of service; the job goes on")
            return
        self.trouble = _Trouble(gpu, verdict.text)

    def _failed_s(self, verdict: Verdict, gpu: Gpu | None) -> tuple[float, str]:
        """When it failed, and how that is known: by the controller, or by the telemetry alone."""
        since_s = verdict.since_s if verdict.since_s is not None else time.monotonic()
        links = {link.id for link in self._job.fabric.links_of(gpu.switch_id)} if gpu else set()
        downs = [
            event["t_s"]
            for event in self._job.running.events()
            if event["event"] == "link-down" and event["link"] in links
        ]
        recent = [at_s for at_s in downs if since_s - WINDOW_S <= at_s <= since_s + WINDOW_S]
        if recent:
            return min(recent), f"the links of {gpu.id if gpu else ''} went down, says the controller"
        return since_s, "nothing has moved since, says the telemetry"

    def notes(self) -> list[str]:
        """What has to be said about the telemetry at the end."""
        notes = []
        if not self.socket.tellers:
            notes.append("no rank told anything: the hook needs programs that Python starts with PYTHONPATH in force")
        lost = self._reader.dropped + self._unreadable + self.socket.malformed
        if lost:
            notes.append(f"{lost} messages of telemetry were lost, as they came faster than they were read")
        return notes


def _hooked(launch: Launch, socket_path: Path) -> Launch:
    """The program with the hook before its own Python path."""
    own = launch.environment.get("PYTHONPATH")
    path = f"{HOOK_FOLDER}{os.pathsep}{own}" if own else str(HOOK_FOLDER)
    return replace(
        launch, environment={**launch.environment, "PYTHONPATH": path, SOCKET_VARIABLE: str(socket_path)}
    )  # fmt: skip
