"""YAML with line numbers: the data, where every key stands, and the keys that occur twice."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from experiments.errors import Problem, ScenarioError

KeyPath = tuple[str | int, ...]
Lines = dict[KeyPath, int]


def read_yaml(path: Path) -> tuple[Any, Lines, list[Problem]]:
    """Data of a YAML file, line of every key and list item, and a problem for every key that occurs twice.

    Raises ScenarioError for a file that is missing, not readable, empty or no YAML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise _error(path, f"the file does not exist{_near_file(path)}") from None
    except IsADirectoryError:
        raise _error(path, "this is a folder; give the scenario file in it") from None
    except UnicodeDecodeError:
        raise _error(path, "the file is not UTF-8 text; a scenario is a YAML file") from None
    except OSError as error:
        raise _error(path, f"the file cannot be read: {error.strerror}") from None
    return parse_yaml(text, path)


def parse_yaml(text: str, path: Path) -> tuple[Any, Lines, list[Problem]]:
    """What :func:`read_yaml` gives, for a text; ``path`` only names it in errors."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            raise _error(path, "the file is empty; a scenario needs at least a fabric and a workload")
        lines: Lines = {(): node.start_mark.line + 1}
        problems = list(_walk(node, (), lines, ()))
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        raise ScenarioError(
            str(path), [Problem(mark.line + 1 if mark else 0, "", f"this is no YAML: {what}")]
        ) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, ScenarioError):
            raise
        raise _error(path, f"this is no YAML: {' '.join(str(error).split())}") from None
    return data, lines, problems


def key_text(path: KeyPath) -> str:
    """A key path to read: ``fabrics[0].domains``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _walk(node: yaml.Node, path: KeyPath, lines: Lines, above: tuple[int, ...]) -> Iterator[Problem]:
    if id(node) in above:  # an alias to a node that holds it
        return
    above = (*above, id(node))
    if isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            name = str(key.value)
            here: KeyPath = (*path, name)
            if name in first:
                text = f"this key occurs twice (first on line {first[name]}); remove one of them"
                yield Problem(line, key_text(here), text)
            first.setdefault(name, line)
            lines[here] = line
            yield from _walk(value, here, lines, above)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            there: KeyPath = (*path, index)
            lines[there] = item.start_mark.line + 1
            yield from _walk(item, there, lines, above)


def _near_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f", nor does the folder {path.parent}; check the path"
    near = difflib.get_close_matches(path.name, [other.name for other in path.parent.iterdir()], n=1)
    return f"; did you mean '{path.parent / near[0]}'?" if near else "; check the path"


def _error(path: Path, text: str) -> ScenarioError:
    return ScenarioError(str(path), [Problem(0, "", text)])
