"""A stored result as a recording: its runs one after the other, those of two fabrics side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dashboard.errors import RecordingError
from dashboard.recording import Shown
from dashboard.stored_run import FRAME_S, StoredRunStory
from experiments.stored import StoredResult, StoredRun, StoredSweep
from topologies.near import did_you_mean

MOST_BOARDS = 2
MOST_GPUS = 1024
"""The largest fabric that is drawn."""

PAUSE_S = 2.0
"""Seconds of the replay between two runs."""

SHORTEST_S = 5.0
"""A result whose longest run lasts less is shown slower: by a power of ten that makes it last so long."""


def shown_of(result: StoredResult | StoredSweep, labels: Sequence[str] = ()) -> list[Shown]:
    """What the page would have shown of the runs of a result on the fabrics ``labels``, by default the first two.

    The same workload, condition and repetition is shown on both at once. Raises RecordingError for fabrics that the
    result does not have, that are too large to be drawn, for more than two, and for a
    sweep.
    """
    if isinstance(result, StoredSweep):
        cases = ", ".join(case.name for case in result.made[:3])
        raise RecordingError(f"{result.path} is a sweep: show one of its cases, {result.path}/cases/... ({cases}, ...)")
    runs = {run.path.name: run for run in result.runs}
    known = list(dict.fromkeys(run.outcome.fabric for run in runs.values()))
    chosen = _chosen(result, known, labels)
    stories: dict[tuple[str, str, int], list[StoredRunStory]] = {}
    for run in runs.values():
        if run.outcome.fabric in chosen:
            key = run.outcome.collective, run.outcome.condition, run.outcome.repetition
            stories.setdefault(key, []).append(StoredRunStory(run, run.outcome.fabric))
    slower = _slower(max((story.length_s for row in stories.values() for story in row), default=0.0))
    note = f"1 s of a run takes {slower:,.0f} s here" if slower != 1 else ""
    made = [Shown(0.0, {"event": "boards", "names": chosen, "note": note, "title": result.name})]
    drawn = {story.on: story for row in reversed(stories.values()) for story in row}
    made += [Shown(0.0, drawn[label].fabric_message(narrow=len(chosen) > 1)) for label in chosen]
    begin_s = 0.0
    for (workload, condition, repetition), row in stories.items():
        words = workload + (", with a failure" if condition == "failure" else "")
        words += f", repetition {repetition}" if repetition > 1 else ""
        expected = {story.on: story.run.outcome.predicted_s for story in row}
        messages: list[tuple[float, dict[str, Any]]] = [
            (0.0, {"event": "workload", "workload": words, "state": "running", "expected_s": expected})
        ]
        for story in row:
            messages += story.messages(FRAME_S / slower)
        length_s = max(story.length_s for story in row)
        messages.append((length_s, {"event": "workload", "workload": words, "state": "over"}))
        messages.sort(key=lambda one: one[0])
        made += [Shown(round(begin_s + t_s * slower, 4), message) for t_s, message in messages]
        begin_s += length_s * slower + PAUSE_S
    return made


def _chosen(result: StoredResult, known: Sequence[str], labels: Sequence[str]) -> list[str]:
    if not known:
        raise RecordingError(f"{result.path} holds no run yet: there is nothing to show")
    for label in labels:
        if label not in known:
            near = did_you_mean(label, known)
            raise RecordingError(f"{result.path} has no fabric '{label}': {near}it has {', '.join(known)}")
    if len(set(labels)) > MOST_BOARDS:
        raise RecordingError(f"{len(set(labels))} fabrics do not fit on the page: choose {MOST_BOARDS} or fewer")
    chosen = list(dict.fromkeys(labels)) or list(known[:MOST_BOARDS])
    of_label: dict[str, StoredRun] = {run.outcome.fabric: run for run in result.runs}
    for label in chosen:
        gpus = of_label[label].spec.domains * of_label[label].spec.rails
        if gpus > MOST_GPUS:
            raise RecordingError(
                f"the fabric '{label}' of {result.path} has {gpus:,} GPUs: up to {MOST_GPUS} are drawn"
            )
    return chosen


def _slower(longest_s: float) -> float:
    """How many seconds of the replay one second of a run takes."""
    if longest_s <= 0 or longest_s >= SHORTEST_S:
        return 1.0
    return float(10 ** math.ceil(math.log10(SHORTEST_S / longest_s)))
