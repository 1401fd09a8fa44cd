"""One run of a stored result as the messages that the page would have shown of it. Pure but for reading its files.

Rates are those of the link counters between two frames; nothing is made up: what a back end did not store (bytes on
their way with iperf3, a gap without a probe) is not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dashboard.drawing import draw
from dashboard.loads import Counters, loads
from dashboard.progress import Calls, CallTime, Meaning, RunProgress
from dashboard.timeline import timeline
from dashboard.workload import finished
from experiments.columns import read_parquet
from experiments.outcome import Outage
from experiments.stored import StoredRun
from topologies.scale import link_rate_mbps
from workloads.failures import FailureKind, LinkFailure
from workloads.records import Event, EventKind

FRAME_S = 0.4
"""Time between two frames, in seconds of the replay: as on a running fabric."""

MOST_FRAMES, LEAST_FRAMES, MOST_VALUES = 2_000, 100, 2_000_000
"""Frames of one run, and loads of single links in all of them; those of a longer run, or a larger fabric, are further
apart."""

Timed = tuple[float, dict[str, Any]]


@dataclass(frozen=True)
class _Transfer:
    id: int
    start_s: float | None
    end_s: float
    complete: bool
    received_bytes: float


class StoredRunStory:
    """Tells one run under the name ``on``. Times of the messages are emulated seconds since the start of the run."""

    def __init__(self, run: StoredRun, on: str) -> None:
        """Raises ResultsError for tables that cannot be read."""
        self.run, self.on = run, on
        self._fabric, self._scale = run.fabric, run.scale
        self._facts = run.settings()
        self.length_s = 0.0
        if run.outcome.was_made:
            self._links = run.links()
            self._events = run.events()
            self._transfers = self._read_transfers()
            times = [float(self._links.t_s[-1])] if len(self._links.t_s) else []
            self.length_s = max([*times, *(one.end_s for one in self._transfers)], default=0.0)

    def fabric_message(self, narrow: bool) -> dict[str, Any]:
        """The message that draws the fabric."""
        return self._of({"event": "fabric", "name": self.on, **draw(self._fabric, self._scale, narrow).to_dict()})

    def messages(self, frame_s: float) -> Iterator[Timed]:
        """All messages of the run, in no order; frames are ``frame_s`` emulated seconds apart or more."""
        yield 0.0, self._of({"event": "impairments", "links": []})
        if self.run.outcome.was_made:
            most = max(LEAST_FRAMES, min(MOST_FRAMES, MOST_VALUES // (3 * len(self._fabric.links))))
            step_s = max(frame_s, self.length_s / most)
            frames = [k * step_s for k in range(1, int(self.length_s / step_s) + 1)] if step_s else []
            if self.length_s > (frames[-1] if frames else 0.0):
                frames.append(self.length_s)
            yield from self._progress(frames)
            yield from self._loads(frames)
            yield from self._broken()
            yield from self._timelines()
        yield self.length_s, self._of(finished(self.run.outcome.collective, self.run.outcome))

    def _of(self, message: dict[str, Any]) -> dict[str, Any]:
        return {**message, "on": self.on}

    # What links carried

    def _loads(self, frames: Sequence[float]) -> Iterator[Timed]:
        series, ids = self._links, [link.id for link in self._fabric.failure_targets()]
        if not len(series.t_s):
            return
        column = {link_id: place for place, link_id in enumerate(series.link_ids)}
        grid = np.array([0.0, *frames])
        still = np.zeros(len(grid))

        def at_frames(counters: Any) -> Any:
            columns = [np.interp(grid, series.t_s, counters[:, column[one]]) if one in column else still for one in ids]
            return np.stack(columns, axis=1)

        out, back = at_frames(series.a_to_b_bytes), at_frames(series.b_to_a_bytes)
        before = Counters(0.0, out[0].tolist(), back[0].tolist())
        for place, t_s in enumerate(frames, 1):
            after = Counters(t_s, out[place].tolist(), back[place].tolist())
            yield t_s, self._of(loads(before, after))
            before = after
        yield self.length_s, self._of(loads(before, replace(before, t_s=self.length_s + FRAME_S)))

    # How far the run was

    def _read_transfers(self) -> list[_Transfer]:
        names = ("id", "start_s", "end_s", "status", "received_bytes")
        columns = [self.run.transfers()[name].to_pylist() for name in names]
        rows = list(zip(*columns, strict=True))
        last_s = max((end_s for _, _, end_s, _, _ in rows if end_s is not None), default=0.0)
        made = [
            _Transfer(number, start_s, last_s if end_s is None else end_s, status == "complete", received)
            for number, start_s, end_s, status, received in rows
        ]
        return sorted(made, key=lambda one: one.end_s)

    def _progress(self, frames: Sequence[float]) -> Iterator[Timed]:
        reports = self._reports()
        meaning = self._meaning()
        calls = self._calls()
        counts: dict[str, int] = {}
        for call, _ in calls:
            counts[call.collective] = counts.get(call.collective, 0) + 1
        progress = RunProgress(
            self.run.outcome.collective, str(self._facts["engine"] or self.run.outcome.backend),
            len(self._transfers), meaning, Calls(counts, meaning), fine=bool(reports),
        )  # fmt: skip
        assert progress.calls is not None
        yield 0.0, self._of(progress.shown())
        ended = sorted((call for call, whole in calls if whole), key=lambda call: call.end_s)
        done = told = report = 0
        for t_s in frames:
            progress.at(t_s)
            while done < len(self._transfers) and self._transfers[done].end_s <= t_s:
                progress.end(self._transfers[done].complete, self._transfers[done].received_bytes)
                done += 1
            while told < len(ended) and ended[told].end_s <= t_s:
                progress.calls.end(ended[told])
                told += 1
            while report < len(reports) and reports[report][0] <= t_s:
                report += 1
            received = reports[report - 1][1] if report else {}
            active = [one for one in self._transfers[done:] if one.start_s is not None and one.start_s <= t_s]
            progress.under_way(received.get(one.id, 0.0) for one in active)
            if t_s == frames[-1]:
                progress.over()
            yield t_s, self._of(progress.shown())

    def _meaning(self) -> Meaning:
        schedule = self._facts["schedule"]
        total_bytes = sum(self.run.transfers()["size_bytes"].to_pylist())
        return Meaning(schedule["collective"], schedule["group_size"], schedule["size_bytes"], total_bytes, self._scale)

    def _reports(self) -> list[tuple[float, dict[int, float]]]:
        """What transfers on their way had received, report by report; empty where the engine did not say."""
        path = self.run.path / "progress.parquet"
        if not path.exists():
            return []
        table = read_parquet(path)
        made: dict[float, dict[int, float]] = {}
        for t_s, number, received in zip(*(table[name].to_pylist() for name in table.column_names), strict=True):
            made.setdefault(t_s, {})[number] = received
        return sorted(made.items())

    def _calls(self) -> list[tuple[CallTime, bool]]:
        """The collective calls, each with whether all its ranks left it."""
        table = read_parquet(self.run.path / "operations.parquet")
        names = ("collective", "group", "sequence", "entered_s", "left_s")
        times: dict[tuple[str, str, int], tuple[list[float], list[float | None]]] = {}
        for collective, group, sequence, entered_s, left_s in zip(
            *(table[name].to_pylist() for name in names), strict=True
        ):
            entered, left = times.setdefault((collective, group, sequence), ([], []))
            entered += [entered_s] if entered_s is not None else []
            left.append(left_s)
        made = []
        for key, (entered, left) in times.items():
            ends = [end for end in left if end is not None]
            whole = len(ends) == len(left) and bool(entered)
            made.append((CallTime(*key, min(entered, default=0.0), max(ends, default=0.0)), whole))
        return made

    # What was broken

    def _broken(self) -> Iterator[Timed]:
        """What is wrong with links after each change, and the other events as they are."""
        failures: dict[str, list[LinkFailure]] = {}
        for data in self._facts["failures"]:
            failure = LinkFailure.from_dict(data)
            failures.setdefault(failure.link_id, []).append(failure)
        wrong: dict[tuple[str, str], dict[str, Any]] = {}
        for event in self._events:
            if event.kind in (EventKind.LINK_DOWN, EventKind.IMPAIRED):
                for link_id in event.subject.split(","):
                    wrong[link_id, event.detail] = self._state(link_id, event, failures.get(link_id, []))
            elif event.kind in (EventKind.LINK_UP, EventKind.MENDED):
                for link_id in event.subject.split(","):
                    wrong.pop((link_id, event.detail), None)
            elif event.kind in (EventKind.REROUTED, EventKind.NOTE, EventKind.TRANSFER_FAILED):
                what = {"event": event.kind.value, "link": event.subject, "message": event.detail}
                yield event.t_s, self._of({"event": "controller", "what": what})
                continue
            else:
                continue
            yield event.t_s, self._of({"event": "impairments", "links": list(wrong.values())})

    def _state(self, link_id: str, event: Event, failures: Sequence[LinkFailure]) -> dict[str, Any]:
        own_mbps = link_rate_mbps(self._fabric.link(link_id), self._scale)
        state: dict[str, Any] = {
            "link": link_id, "down": event.kind is EventKind.LINK_DOWN, "blackhole": [], "rate_mbps": None,
            "own_rate_mbps": own_mbps, "delay_ms": 0.0, "jitter_ms": 0.0, "loss_share": 0.0,
        }  # fmt: skip
        for failure in failures:
            if event.kind is EventKind.IMPAIRED and failure.text == event.detail:
                if failure.kind is FailureKind.BLACKHOLE:
                    state["blackhole"] = ["out", "in"] if failure.direction == "both" else [failure.direction]
                elif failure.kind is FailureKind.DEGRADE:
                    state["rate_mbps"] = own_mbps * failure.rate_share
                else:
                    state["delay_ms"], state["loss_share"] = failure.delay_s * 1000, failure.loss_share
        return state

    def _timelines(self) -> Iterator[Timed]:
        outages = self.run.outcome.outages
        for outage in outages:
            yield self._timeline(outage, self.run.outcome.longest_gap_s if outage is outages[0] else None)

    def _timeline(self, outage: Outage, gap_s: float | None) -> Timed:
        """A failure as its run's outcome has it; the gap is that of the one stream that a run has."""
        result = {"repaired_s": outage.rerouted_after_s, "gap_s": gap_s}
        told_s = outage.down_s + (outage.rerouted_after_s or 0.0)
        return min(told_s, self.length_s), self._of(timeline("fail", outage.link_id, result))
