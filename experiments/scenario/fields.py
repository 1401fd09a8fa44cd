"""What the sections of a scenario are made of: their base, and values as people write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from experiments.units import Moment, parse_moment, parse_size_bytes
from topologies.near import did_you_mean

_Entry = TypeVar("_Entry")


class Section(BaseModel):
    """A mapping of keys. Unknown keys are refused; docstrings of fields are their descriptions in the JSON Schema."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True, use_attribute_docstrings=True
    )


def known(name: object, what: str, names: Sequence[str]) -> str:
    """``name`` if it is one of ``names``; raises ValueError with the nearest of them for any other."""
    if name in names:
        return str(name)
    raise ValueError(f"unknown {what} {name!r}: {did_you_mean(name, names)}The {what}s are {', '.join(names)}")


def one_of(what: str, names: Callable[[], Sequence[str]]) -> BeforeValidator:
    """A validator for names that are only known where they are used."""
    return BeforeValidator(lambda value: value if value is None else known(value, what, names()))


def _not_empty(entries: tuple[_Entry, ...]) -> tuple[_Entry, ...]:
    if not entries:
        raise ValueError("the list is empty; it needs at least one entry")
    return entries


NOT_EMPTY = AfterValidator(_not_empty)
FROM_LIST = Field(strict=False)
"""YAML has lists where the model has tuples."""

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*\Z")
_DURATION_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}
_PERCENT = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*%\s*\Z")


def parse_duration_s(value: object) -> float:
    """Seconds of a text like ``2.5s`` or ``20ms``; raises ValueError for anything else."""
    expected = "expected a duration above 0 with its unit, like '2.5s' or '20ms'"
    if isinstance(value, str) and (found := _DURATION.match(value)):
        number, unit = float(found.group(1)), found.group(2)
        if unit in _DURATION_UNITS and number > 0:
            return number * _DURATION_UNITS[unit]
        if unit and unit not in _DURATION_UNITS:
            expected = f"unknown unit '{unit}'; the units are s, ms, us and min"
    raise ValueError(f"{expected}, found {value!r}")


def parse_share(value: object) -> float:
    """A share as a number, or as a text like ``25%``; raises ValueError for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and (found := _PERCENT.match(value)):
        return float(found.group(1)) / 100
    raise ValueError(f"expected a share like '25%' or 0.25, found {value!r}")


def _text_schema(pattern: str, *others: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": "string", "pattern": pattern}, *others]})


Size = Annotated[
    int,
    BeforeValidator(parse_size_bytes),
    _text_schema(r"^\s*\d+(\.\d+)?\s*([kKMGT]i?)?[bB]?\s*$", {"type": "integer", "minimum": 1}),
]
"""Real bytes: a whole number, or a text with a unit."""

When = Annotated[
    Moment,
    BeforeValidator(parse_moment),
    PlainSerializer(str, return_type=str),
    _text_schema(r"^\s*\d+(\.\d+)?\s*(%|s)\s*$"),
]
"""A moment of a run: a share of its predicted duration, or emulated seconds."""

Duration = Annotated[
    float,
    BeforeValidator(parse_duration_s),
    PlainSerializer(lambda seconds: f"{seconds!r}s", return_type=str),
    _text_schema(r"^\s*\d+(\.\d+)?\s*(s|ms|us|min)\s*$"),
]
"""Emulated seconds, written with their unit."""

Share = Annotated[
    float,
    BeforeValidator(parse_share),
    _text_schema(r"^\s*[+-]?\d+(\.\d+)?\s*%\s*$", {"type": "number"}),
]
"""A share: a number, or a text in percent."""
