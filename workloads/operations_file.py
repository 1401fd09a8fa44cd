"""The file of a schedule of operations, and reading either kind of schedule file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from workloads.errors import ScheduleError
from workloads.families import AnyFamily, Family, ListedFamily
from workloads.operations import Call, Operation, OperationSchedule
from workloads.schedule import FORMAT as TRANSFERS_FORMAT
from workloads.schedule import Schedule

FORMAT = "railbed-operations"
FORMAT_VERSION = 1


def operations_to_dict(schedule: OperationSchedule) -> dict[str, Any]:
    """A JSON-ready form that :func:`operations_from_dict` reads back.

    Keys: ``format``, ``version``, ``name``, ``ranks``, ``form``, ``seed``, ``families`` and ``operations``. A family
    has a ``name`` and either ``first``, ``inside`` and ``between`` or ``groups``; a call names its family by its place
    in the list. What has its default value is left out.
    """
    places: dict[AnyFamily, int] = {}
    operations = []
    for operation in schedule.operations:
        calls = []
        for call in operation.calls:
            place = places.setdefault(call.family, len(places))
            calls.append({"family": place, **_changed(call, ("family",))})
        operations.append({"id": operation.id, "calls": calls, **_changed(operation, ("id", "calls"))})
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "name": schedule.name,
        "ranks": schedule.ranks,
        "form": schedule.form,
        "seed": schedule.seed,
        "families": [_family_to_dict(family) for family in places],
        "operations": operations,
    }


def operations_from_dict(data: Mapping[str, Any]) -> OperationSchedule:
    """Inverse of :func:`operations_to_dict`; raises ScheduleError for another format, and for missing or wrong keys."""
    if data.get("format") != FORMAT or data.get("version") != FORMAT_VERSION:
        raise ScheduleError(
            f"this is not a schedule of operations that can be read: expected format '{FORMAT}' version "
            f"{FORMAT_VERSION}, found {data.get('format')!r} version {data.get('version')!r}"
        )
    where = "the schedule"
    try:
        families = []
        for number, row in enumerate(data["families"]):
            where = f"family {number} of the schedule"
            families.append(_family_from_dict(row))
        operations = []
        for number, row in enumerate(data["operations"]):
            where = f"operation {number} of the schedule"
            calls = tuple(_call_from_dict(call, families) for call in row["calls"])
            rest = {**row, "calls": calls, "after": tuple(row.get("after", ()))}
            operations.append(Operation(**rest))
        where = "the schedule"
        return OperationSchedule(data["name"], data["ranks"], tuple(operations), data["form"], data["seed"])
    except KeyError as error:
        raise ScheduleError(f"{where} lacks the key {error}; write it again") from None
    except (TypeError, IndexError, ValueError) as error:
        raise ScheduleError(f"{where} has a missing, unknown or wrong value: {error}") from None


def read_schedule_file(path: Path) -> Schedule | OperationSchedule:
    """The schedule in a file of either kind; raises ScheduleError for one that is missing, not JSON or no schedule."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScheduleError(f"the schedule {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ScheduleError(f"the schedule {path} is no JSON: {error}") from None
    if not isinstance(data, dict) or data.get("format") not in (FORMAT, TRANSFERS_FORMAT):
        raise ScheduleError(f"{path} holds no schedule; 'railbed import -o' and 'railbed iteration -o' write one")
    return operations_from_dict(data) if data["format"] == FORMAT else Schedule.from_dict(data)


def _changed(value: Call | Operation, without: Sequence[str]) -> dict[str, Any]:
    """The fields of ``value`` that have another value than their default."""
    found = {}
    for one in fields(value):
        held = getattr(value, one.name)
        if one.name not in without and (one.default is MISSING or held != one.default):
            found[one.name] = held
    return found


def _family_to_dict(family: AnyFamily) -> dict[str, Any]:
    if isinstance(family, ListedFamily):
        return {"name": family.name, "groups": family.listed}
    return {"name": family.name, "first": family.first, "inside": family.inside, "between": family.between}


def _family_from_dict(row: Mapping[str, Any]) -> AnyFamily:
    if "groups" in row:
        groups = _rows(row["groups"])
        if not groups or len({len(members) for members in groups}) > 1 or not groups[0]:
            raise ValueError("its groups must be equally large, with at least one rank")
        return ListedFamily(row["name"], groups)
    inside, between = ([(count, apart) for count, apart in row[key]] for key in ("inside", "between"))
    if any(count < 1 or not apart for count, apart in (*inside, *between)):
        raise ValueError("an axis needs a count of 1 or more and a distance other than 0")
    return Family(row["name"], tuple(inside), tuple(between), row["first"])


def _call_from_dict(row: Mapping[str, Any], families: Sequence[AnyFamily]) -> Call:
    return Call(**{**row, "family": families[row["family"]], "splits": _rows(row.get("splits", ()))})


def _rows(rows: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in rows)
