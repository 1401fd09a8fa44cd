"""YAML files of figures that a user edits: read, and checked key by key."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from topologies.errors import RailbedError
from topologies.near import did_you_mean


@dataclass(frozen=True)
class Figure:
    """One number of a file, and where it is from."""

    value: float
    source: str


def read_text(path: Path, what: str, error: type[RailbedError]) -> str:
    """The text of a file that is called ``what``; raises ``error`` where it is missing or no text."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        raise error(f"{path}: the {what} cannot be read: {problem.strerror}; check the path") from None
    except UnicodeDecodeError:
        raise error(f"{path}: this is no text in UTF-8; a {what} is a YAML file") from None


def read_yaml(text: str, name: str, error: type[RailbedError]) -> object:
    """What a YAML text says; ``name`` is what errors call it. Raises ``error`` for a key that occurs twice, too."""
    try:
        return yaml.load(text, _UniqueKeys)  # a subclass of the safe loader
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        what = getattr(problem, "problem", None) or " ".join(str(problem).split())
        raise error(f"{name}: this is no YAML{where}: {what}; correct it") from None
    except (RecursionError, ValueError) as problem:
        raise error(f"{name}: this is no YAML: {' '.join(str(problem).split())}; correct it") from None


class Reader:
    """Checks the parts of a file; every error names the file, the key and what was expected there."""

    def __init__(self, name: str, error: type[RailbedError], meanings: Mapping[str, str]) -> None:
        """``error`` is what is raised, ``meanings`` says by key what the value is."""
        self.name = name
        self._error = error
        self._meanings = meanings

    def wrong(self, key: str, expected: str, found: object) -> RailbedError:
        """The error of a value that is not what was expected under ``key``."""
        shown = " ".join(repr(found).split())
        where = f"{self.name}: {key}" if key else self.name
        return self._error(f"{where}: expected {expected}, found {shown if len(shown) <= 60 else shown[:57] + '...'}")

    def section(self, data: object, key: str, needed: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Any]:
        """A mapping with all keys of ``needed`` and no others than those of ``optional``."""
        needed, optional = tuple(needed), tuple(optional)
        if not isinstance(data, dict):
            raise self.wrong(key, f"the keys {', '.join(needed)}", data)
        prefix = f"{key}." if key else ""
        for name in data:
            if name not in (*needed, *optional):
                known = (*needed, *optional)
                hint = did_you_mean(name, known).rstrip("? ") or f"the keys here are {', '.join(known)}"
                raise self._error(f"{self.name}: {prefix}{name}: this key is unknown; {hint}")
        for name in needed:
            if name not in data:
                what = self._meanings.get(name)
                expected = f"; expected {what}" if what else ""
                raise self._error(f"{self.name}: {prefix}{name}: this key is missing{expected}")
        return data

    def by_number(self, data: object, key: str, what: str) -> list[tuple[float, Any]]:
        """The entries of a mapping whose keys are numbers above 0; there is at least one."""
        if not isinstance(data, dict) or not data:
            raise self.wrong(key, f"entries whose key is {what}", data)
        for number in data:
            if not _is_number(number) or number <= 0:
                raise self.wrong(f"{key}.{number}", f"{what}, above 0, as the key", number)
        return list(data.items())

    def figure(self, data: Any, key: str, what: str) -> Figure:
        """A number of at least 0, bare or with its source."""
        source = f"given in {self.name}"
        if isinstance(data, dict):
            section = self.section(data, key, ("value",), ("source",))
            data, key = section["value"], f"{key}.value"
            if "source" in section:
                source = section["source"]
                if not isinstance(source, str) or not source.strip():
                    raise self.wrong(
                        f"{key.removesuffix('.value')}.source", "a text that says where it is from", source
                    )
        if not _is_number(data) or data < 0:
            raise self.wrong(key, f"a number of at least 0 ({what})", data)
        return Figure(float(data), source.strip())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


class _UniqueKeys(yaml.SafeLoader):
    """The safe loader, which also refuses a key that occurs twice: the first value would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                key = self.construct_object(key_node)
                if key in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key '{key}' occurs twice", problem_mark=key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)
