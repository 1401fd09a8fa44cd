"""The timeline of one change of a link: what happened, and how long after the change. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def timeline(action: str, target: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """The message about a link that went down or up, from what the fabric answers about it.

    ``result`` has seconds since the change (``detected_s``, ``repaired_s``, ``traffic_back_s``), the duration
    ``computed_s``, and ``gap_s``, the longest silence of a stream across the link; whatever is missing is left out,
    never guessed. ``steps`` of the answer are ``name`` and ``at_ms``, in order of time; ``gap_ms`` is None if no
    stream was sent or it saw fewer than two datagrams.
    """
    steps = [{"name": "injected", "at_ms": 0.0}]
    detected_s = result.get("detected_s")
    if detected_s is not None:
        steps.append({"name": "detected", "at_ms": _ms(detected_s)})
        computed_s = result.get("computed_s")
        if computed_s is not None:
            steps.append({"name": "computed", "at_ms": _ms(detected_s + computed_s)})
    if result.get("repaired_s") is not None:
        steps.append({"name": "rules in force", "at_ms": _ms(result["repaired_s"])})
    if result.get("traffic_back_s") is not None:
        steps.append({"name": "traffic back", "at_ms": _ms(result["traffic_back_s"])})
    gap_s = result.get("gap_s")
    return {
        "event": "timeline",
        "action": action,
        "target": target,
        "changed": bool(result.get("changed", True)),
        "steps": sorted(steps, key=lambda step: float(step["at_ms"])),
        "gap_ms": None if gap_s is None else _ms(gap_s),
        "stream": result.get("stream"),
        "rules_added": result.get("rules_added"),
    }


def noticed(
    action: str, target: str, noticed_s: float, computed_s: float | None, repaired_s: float, rules_added: int
) -> dict[str, Any]:
    """The message about a change that the page did not make: it begins when the controller noticed.

    Times are of one clock. When it was injected is not known, and no stream crossed the link.
    """
    steps = [("detected", noticed_s), ("computed", computed_s), ("rules in force", repaired_s)]
    return {
        "event": "timeline",
        "action": action,
        "target": target,
        "changed": True,
        "steps": [{"name": name, "at_ms": _ms(at_s - noticed_s)} for name, at_s in steps if at_s is not None],
        "gap_ms": None,
        "stream": None,
        "rules_added": rules_added,
        "elsewhere": True,
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
