"""From a scenario file to a scenario, with everything that is wrong with the file told at once."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from experiments.errors import Problem, ScenarioError
from experiments.scenario.checks import misfits
from experiments.scenario.expectations import ExpectSection, Versus
from experiments.scenario.fabrics import FabricSection, RoutingSection, ScaleSection
from experiments.scenario.failures import FailureSection
from experiments.scenario.fields import Section
from experiments.scenario.model import MeasureSection, Scenario
from experiments.scenario.workloads import SECTIONS, LoadSection, PlanSection
from experiments.yaml_lines import KeyPath, Lines, key_text, parse_yaml, read_yaml
from topologies.near import did_you_mean

Setting = tuple[str, Any]
"""A key, such as ``fabrics[0].domains``, and the value that takes the place of the file's."""


def load_scenario(path: Path | str, settings: Iterable[Setting] = ()) -> Scenario:
    """Read and check a scenario file; raises ScenarioError with everything that is wrong with it.

    ``settings`` take the place of what the file says; see :func:`set_values`.
    """
    path = Path(path)
    return _checked(path, *read_yaml(path), tuple(settings))


def parse_scenario(text: str, path: Path | str = "scenario", settings: Iterable[Setting] = ()) -> Scenario:
    """What :func:`load_scenario` gives, for a text; ``path`` only names it in errors."""
    path = Path(path)
    return _checked(path, *parse_yaml(text, path), tuple(settings))


def parse_setting(text: str) -> Setting:
    """The setting written as ``key=value``, its value in YAML; raises ScenarioError for anything else."""
    key, equals, value = text.partition("=")
    try:
        if equals and key.strip():
            return key.strip(), yaml.safe_load(value)
    except yaml.YAMLError:
        pass
    raise ScenarioError(f"--set {text}", [Problem(0, "", "expected KEY=VALUE, such as fabrics[0].domains=8 or seed=3")])


def set_values(data: dict[str, Any], settings: Sequence[Setting]) -> tuple[dict[str, Any], list[Problem]]:
    """``data`` of a scenario with other values, and the settings whose place does not exist.

    A key without a number stands for all entries of a list: ``workload.size`` is the size of every entry.
    """
    data = copy.deepcopy(data)
    problems = []
    for key, value in settings:
        try:
            _set(data, _steps(key), value)
        except LookupError as error:
            problems.append(Problem(0, key, str(error.args[0])))
    return data, problems


def _steps(key: str) -> list[str | int]:
    steps: list[str | int] = []
    for part in key.split("."):
        name, *indices = part.replace("]", "").split("[")
        steps.append(name)
        for index in indices:
            if not index.isdigit():
                raise LookupError(f"'[{index}]' is no position; write it like fabrics[0]")
            steps.append(int(index))
    if "" in steps:
        raise LookupError("a part of the key is empty; write it like fabrics[0].domains")
    return steps


def _set(here: Any, steps: Sequence[str | int], value: Any) -> None:
    first, rest = steps[0], steps[1:]
    if isinstance(here, list) and isinstance(first, str):
        for entry in here:
            _set(entry, steps, value)
        return
    if isinstance(first, int):
        if not isinstance(here, list) or first >= len(here):
            count = len(here) if isinstance(here, list) else 0
            raise LookupError(f"there is no entry [{first}]; the list has {count}, counted from 0")
    elif not isinstance(here, dict):
        raise LookupError(f"'{first}' is set in something that is no mapping of keys")
    elif first == "fabric" and "fabrics" in here:
        first = "fabrics"
    elif first == "fabrics" and "fabric" in here:
        first = "fabric"
        rest = rest[1:] if rest and rest[0] == 0 else rest
    if not rest:
        here[first] = value
        return
    if isinstance(here, dict) and first not in here:
        here[first] = {}
    _set(here[first], rest, value)


_SECTIONS: dict[str, type[Section]] = {
    "fabrics": FabricSection,
    "fabric": FabricSection,
    "scale": ScaleSection,
    "routing": RoutingSection,
    "measure": MeasureSection,
    "plan": PlanSection,
    "load": LoadSection,
    "failures": FailureSection,
    "expect": ExpectSection,
    "versus": Versus,
    **SECTIONS,
}
"""By the last name in the path of a key that does not exist: where it should have been."""


def _checked(
    path: Path, data: Any, lines: Lines, problems: list[Problem], settings: tuple[Setting, ...] = ()
) -> Scenario:
    if not isinstance(data, dict):
        raise ScenarioError(
            str(path), [*problems, Problem(lines.get((), 1), "", "a scenario is a mapping of keys like 'fabrics:'")]
        )
    data, unset = set_values(data, settings)
    problems = [*problems, *unset]
    prefix: KeyPath = ()
    if "fabric" in data:
        if "fabrics" in data:
            where = lines.get(("fabric",), 0)
            problems.append(Problem(where, "fabric", "give either 'fabric' or 'fabrics', not both"))
            single = {}
        else:
            single = {"fabrics": [data["fabric"]]}
            prefix = ("fabric",)
        data = {**{key: value for key, value in data.items() if key != "fabric"}, **single}

    def tell(loc: KeyPath, text: object) -> Problem:
        if loc[-2:-1] == ("size",) and _in_file(loc, prefix) not in lines:
            loc = loc[:-1]  # a single size is a list of one in the model
        key = key_text(_in_file(loc, prefix))
        is_set = any(_within(key, given) or _within(given, key) for given, _ in settings)
        return Problem(0 if is_set else _line(loc, lines, prefix), key, str(text))

    try:
        scenario = Scenario.model_validate(data, context={"folder": path.parent})
    except ValidationError as error:
        problems.extend(tell(_without_tags(found["loc"]), _text(dict(found))) for found in error.errors())
    else:
        problems.extend(misfits(scenario, tell))
        if not problems:
            return scenario
    problems.sort(key=lambda problem: problem.line)
    raise ScenarioError(str(path), problems)


def _within(key: str, other: str) -> bool:
    """Whether ``key`` is ``other`` or below it, whichever entries of lists are meant."""
    inner, outer = (re.sub(r"\[\d+\]", "", one).replace("fabrics", "fabric").split(".") for one in (key, other))
    return inner[: len(outer)] == outer


def _without_tags(loc: KeyPath) -> KeyPath:
    """The path without what pydantic adds to it: after a position in a workload comes the kind of the entry."""
    return tuple(_untagged(loc))


def _untagged(loc: KeyPath) -> Iterator[str | int]:
    for position, part in enumerate(loc):
        before = loc[position - 2 : position]
        is_tag = len(before) == 2 and before[0] in ("workload", "jobs") and isinstance(before[1], int)
        if not (is_tag and part in SECTIONS):
            yield part


def _text(found: dict[str, Any]) -> str:
    """A pydantic error as one sentence: what was expected, the nearest valid name."""
    kind, value, context = found["type"], found["input"], found.get("ctx", {})
    texts: dict[str, Callable[[], str]] = {
        "extra_forbidden": lambda: _unknown_key(found["loc"]),
        "missing": lambda: "this key is missing",
        "value_error": lambda: str(context["error"]),
        "union_tag_not_found": lambda: _no_kind(value),
        "int_type": lambda: f"expected a whole number, found {value!r}",
        "int_from_float": lambda: f"expected a whole number, found {value!r}",
        "float_type": lambda: f"expected a number, found {value!r}",
        "finite_number": lambda: f"expected a number, found {value!r}",
        "bool_type": lambda: f"expected true or false, found {value!r}",
        "string_type": lambda: f"expected a text, found {value!r}",
        "tuple_type": lambda: f"expected a list (lines that start with '- '), found {value!r}",
        "model_type": lambda: f"expected a mapping of keys, found {value!r}",
        "model_attributes_type": lambda: f"expected a mapping of keys, found {value!r}",
        "string_too_short": lambda: "the text is empty",
        "string_too_long": lambda: f"the text is longer than {context['max_length']} characters",
        "greater_than": lambda: f"must be above {context['gt']:g}, found {value!r}",
        "greater_than_equal": lambda: f"must be at least {context['ge']:g}, found {value!r}",
        "less_than": lambda: f"must be below {context['lt']:g}, found {value!r}",
        "less_than_equal": lambda: f"must be at most {context['le']:g}, found {value!r}",
        "literal_error": lambda: f"expected {context['expected']}, found {value!r}",
    }
    return texts.get(kind, lambda: f"{found['msg']}, found {value!r}")()


def _no_kind(value: object) -> str:
    keys = ", ".join(f"'{key}'" for key in SECTIONS)
    if isinstance(value, dict):
        near = next((hint for key in value if (hint := did_you_mean(key, SECTIONS))), "")
        return f"an entry of the workload has one of the keys {keys}, which says what it is: {near}".rstrip(": ")
    return f"expected a mapping with one of the keys {keys}, found {value!r}"


def _unknown_key(loc: KeyPath) -> str:
    names = [part for part in loc[:-1] if isinstance(part, str)]
    section = _SECTIONS.get(names[-1], Scenario) if names else Scenario
    known = list(section.model_fields)
    return f"unknown key: {did_you_mean(loc[-1], known)}The keys here are {', '.join(known)}"


def _in_file(loc: KeyPath, prefix: KeyPath) -> KeyPath:
    """The path of a key as the file has it: a single ``fabric`` is the first of ``fabrics`` in the model."""
    return (*prefix, *loc[2:]) if prefix and loc[:2] == ("fabrics", 0) else loc


def _line(loc: KeyPath, lines: Lines, prefix: KeyPath) -> int:
    """Line of a key, or of the nearest section that holds it."""
    path = _in_file(loc, prefix)
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 0)
