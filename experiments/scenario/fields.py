"""What the sections of a scenario are made of: their base, and values as people write them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue

from experiments.units import Moment, parse_moment, parse_size_bytes
from topologies.near import did_you_mean


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


@dataclass(frozen=True)
class OneOf:
    """Marks a text that must be one of ``names``; ``what`` they are is for the message."""

    what: str
    names: Sequence[str]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return BeforeValidator(self._checked).__get_pydantic_core_schema__(source, handler)

    def _checked(self, value: object) -> str | None:
        return None if value is None else known(value, self.what, self.names)

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"enum": list(self.names)}


class _NotEmpty:
    """Marks a list that needs an entry. pydantic's own ``min_length`` does not count entries that are wrong."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return AfterValidator(_not_empty).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "minItems": 1}


def _not_empty(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    if not entries:
        raise ValueError("the list is empty; it needs at least one entry")
    return entries


NOT_EMPTY = _NotEmpty()
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


def duration_of(duration_s: float) -> str:
    """The text of a duration, never with an exponent; :func:`parse_duration_s` gives back exactly the same number."""
    return f"{Decimal(repr(duration_s)):f}s"


def parse_share(value: object) -> float:
    """A share as a number, or as a text like ``25%``; raises ValueError for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and (found := _PERCENT.match(value)):
        return float(found.group(1)) / 100
    raise ValueError(f"expected a share like '25%' or 0.25, found {value!r}")


def _text_schema(pattern: str, *others: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": "string", "pattern": pattern}, *others]})


_SIZE_SCHEMA = {
    "anyOf": [
        {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*([kKMGTmgt][iI]?)?[bB]?\s*$"},
        {"type": "integer", "minimum": 1},
    ]
}

Size = Annotated[int, BeforeValidator(parse_size_bytes), WithJsonSchema(_SIZE_SCHEMA)]
"""Real bytes: a whole number, or a text with a unit."""


def _several(value: object) -> object:
    return tuple(value) if isinstance(value, list) else (value,)


Sizes = Annotated[
    tuple[Size, ...],
    NOT_EMPTY,
    BeforeValidator(_several),
    WithJsonSchema({"anyOf": [_SIZE_SCHEMA, {"type": "array", "items": _SIZE_SCHEMA, "minItems": 1}]}),
]
"""One size, or a list of them."""

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
    PlainSerializer(duration_of, return_type=str),
    _text_schema(r"^\s*\d+(\.\d+)?\s*(s|ms|us|min)\s*$"),
]
"""Emulated seconds, written with their unit."""

Share = Annotated[
    float,
    BeforeValidator(parse_share),
    _text_schema(r"^\s*[+-]?\d+(\.\d+)?\s*%\s*$", {"type": "number"}),
]
"""A share: a number, or a text in percent."""
