"""A scenario: which fabrics, at which scale, with which collectives and failures. One YAML file, typed and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from experiments.errors import Problem, ScenarioError
from experiments.units import Moment, parse_moment, parse_size_bytes
from experiments.yaml_lines import KeyPath, Lines, key_text, parse_yaml, read_yaml
from topologies.builders import build, preset_spec
from topologies.errors import RailbedError
from topologies.model import Fabric, FabricKind, FabricSpec, LinkKind, fabric_kind
from topologies.near import did_you_mean
from topologies.presets import preset
from topologies.scale import Scale, check_scale, default_scale
from workloads.collectives import COLLECTIVES, GROUPINGS, check_groups, collective_on
from workloads.schedule import Schedule

_Entry = TypeVar("_Entry")

AUTO = "auto"
"""In place of a link id: the NIC link that carries most bytes of the running collective."""

EMULATOR = "emulator"


def _known(name: object, what: str, known: Sequence[str]) -> str:
    if name in known:
        return str(name)
    raise ValueError(f"unknown {what} {name!r}: {did_you_mean(name, known)}The {what}s are {', '.join(known)}")


def _not_empty(entries: tuple[_Entry, ...]) -> tuple[_Entry, ...]:
    if not entries:
        raise ValueError("the list is empty; it needs at least one entry")
    return entries


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


class FabricSection(_Section):
    """One fabric: the fields of :class:`topologies.model.FabricSpec`, or a preset and what differs from it."""

    kind: FabricKind
    domains: int
    rails: int | None = None
    preset: str | None = None
    name: str | None = Field(default=None, min_length=1)
    nic_rate_mbps: float | None = None
    nvlink_rate_mbps: float | None = None
    spines: int | None = None
    parallel_links: int | None = None
    oversubscription: float | None = None
    switch_ports: int | None = None
    uplinks: int | None = None
    domains_per_leaf: int | None = None

    @field_validator("kind", mode="before")
    @classmethod
    def _kind(cls, value: object) -> FabricKind:
        return value if isinstance(value, FabricKind) else fabric_kind(str(value))

    @field_validator("preset")
    @classmethod
    def _preset(cls, value: str | None) -> str | None:
        return value if value is None else preset(value).name

    @property
    def label(self) -> str:
        """Name of the fabric in results."""
        return self.name or self.kind.value

    def spec(self) -> FabricSpec:
        """What to build; raises FabricError without rails and preset."""
        if self.preset is None and self.rails is None:
            raise ValueError("the number of GPUs per domain is missing: give 'rails' or a 'preset'")
        named = self.model_dump(exclude={"preset", "name", "kind"}, exclude_none=True)
        if self.preset is None:
            return FabricSpec(kind=self.kind, **named)
        base = preset_spec(self.preset, self.kind, self.domains, self.rails).to_dict()
        return FabricSpec.from_dict({**base, **named})


class ScaleSection(_Section):
    """The scale model's two factors; without them the default of the fabric's size."""

    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    time: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class CollectiveSection(_Section):
    """One collective: its name, its size in real bytes (nccl-tests' meaning), and the groups that run it."""

    collective: str
    size: Annotated[int, BeforeValidator(parse_size_bytes)]
    group: str = "all"
    name: str | None = Field(default=None, min_length=1)

    @field_validator("collective", mode="before")
    @classmethod
    def _collective(cls, value: object) -> str:
        return _known(value, "collective", list(COLLECTIVES))

    @field_validator("group", mode="before")
    @classmethod
    def _group(cls, value: object) -> str:
        return _known(value, "group", list(GROUPINGS))

    @property
    def label(self) -> str:
        """Name of the collective in results."""
        return self.name or (self.collective if self.group == "all" else f"{self.collective} per rail")


class FailureSection(_Section):
    """A link that fails during every collective, and comes back at ``restore`` or not at all."""

    link: str = AUTO
    at: Annotated[Moment, BeforeValidator(parse_moment)]
    restore: Annotated[Moment, BeforeValidator(parse_moment)] | None = None


class Scenario(_Section):
    """A whole experiment. Every collective runs healthy on every fabric and, where failures are given, with them."""

    name: str = Field(default="run", min_length=1, max_length=60)
    question: str = ""
    fabrics: Annotated[tuple[FabricSection, ...], Field(strict=False), AfterValidator(_not_empty)]
    scale: ScaleSection = ScaleSection()
    workload: Annotated[tuple[CollectiveSection, ...], Field(strict=False), AfterValidator(_not_empty)]
    failures: Annotated[tuple[FailureSection, ...], Field(strict=False)] = ()
    backend: Literal["emulator", "simulator"] = "emulator"
    seed: int = Field(default=0, ge=0)

    def build_fabrics(self) -> dict[str, Fabric]:
        """The fabrics by label, in order."""
        return {section.label: build(section.spec()) for section in self.fabrics}

    def scale_for(self, fabric: Fabric) -> Scale:
        """The scale as given, else the default of the fabric's size.

        A fabric too large to emulate has no default: the simulator then computes in units of the real machine. Raises
        ScaleError for the emulator.
        """
        try:
            default = default_scale(fabric)
        except RailbedError:
            if self.backend == EMULATOR and self.scale.rate is None:
                raise
            default = Scale(1.0, 1.0)
        return Scale(self.scale.rate or default.rate, self.scale.time or default.time)

    def schedules_for(self, fabric: Fabric) -> tuple[Schedule, ...]:
        """One schedule per entry of the workload; the same on every fabric of equal domains and rails."""
        return tuple(
            collective_on(fabric, section.collective, section.group, section.size, name=section.label, seed=self.seed)
            for section in self.workload
        )

    def to_yaml(self) -> str:
        """The scenario with every default filled in, as a file that :func:`load_scenario` reads back."""
        data = self.model_dump(exclude_none=True, exclude={"failures"})
        data["fabrics"] = [{**section, "kind": section["kind"].value} for section in data["fabrics"]]
        data["workload"] = list(data["workload"])
        data["failures"] = [
            {key: str(value) for key, value in section if value is not None} for section in self.failures
        ]
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


def load_scenario(path: Path | str) -> Scenario:
    """Read and check a scenario file; raises ScenarioError with everything that is wrong with it."""
    path = Path(path)
    return _checked(path, *read_yaml(path))


def parse_scenario(text: str, path: Path | str = "scenario") -> Scenario:
    """What :func:`load_scenario` gives, for a text; ``path`` only names it in errors."""
    path = Path(path)
    return _checked(path, *parse_yaml(text, path))


_SECTIONS: dict[str, type[_Section]] = {
    "fabrics": FabricSection,
    "fabric": FabricSection,
    "scale": ScaleSection,
    "workload": CollectiveSection,
    "failures": FailureSection,
}


def _checked(path: Path, data: Any, lines: Lines, problems: list[Problem]) -> Scenario:
    prefix: KeyPath = ()
    if not isinstance(data, dict):
        raise ScenarioError(str(path), [*problems, Problem(1, "", "a scenario is a mapping of keys like 'fabrics:'")])
    if "fabric" in data:
        if "fabrics" in data:
            where = lines.get(("fabric",), 0)
            problems.append(Problem(where, "fabric", "give either 'fabric' or 'fabrics', not both"))
            single = {}
        else:
            single = {"fabrics": [data["fabric"]]}
            prefix = ("fabric",)
        data = {**{key: value for key, value in data.items() if key != "fabric"}, **single}
    try:
        scenario = Scenario.model_validate(data)
    except ValidationError as error:
        for found in error.errors():
            problems.append(_problem(dict(found), lines, prefix))
    else:
        problems.extend(_misfits(scenario, lines, prefix))
        if not problems:
            return scenario
    problems.sort(key=lambda problem: problem.line)
    raise ScenarioError(str(path), problems)


def _problem(found: dict[str, Any], lines: Lines, prefix: KeyPath) -> Problem:
    """A pydantic error as one sentence: key, what was expected, the nearest valid name."""
    loc: KeyPath = found["loc"]
    kind, value, context = found["type"], found["input"], found.get("ctx", {})
    texts: dict[str, Callable[[], str]] = {
        "extra_forbidden": lambda: _unknown_key(loc),
        "missing": lambda: "this key is missing",
        "value_error": lambda: str(context["error"]),
        "int_type": lambda: f"expected a whole number, found {value!r}",
        "int_from_float": lambda: f"expected a whole number, found {value!r}",
        "float_type": lambda: f"expected a number, found {value!r}",
        "finite_number": lambda: f"expected a number, found {value!r}",
        "string_type": lambda: f"expected a text, found {value!r}",
        "tuple_type": lambda: f"expected a list (lines that start with '- '), found {value!r}",
        "model_type": lambda: f"expected a mapping of keys, found {value!r}",
        "model_attributes_type": lambda: f"expected a mapping of keys, found {value!r}",
        "string_too_short": lambda: "the text is empty",
        "string_too_long": lambda: f"the text is longer than {context['max_length']} characters",
        "greater_than": lambda: f"must be above {context['gt']:g}, found {value!r}",
        "greater_than_equal": lambda: f"must be at least {context['ge']:g}, found {value!r}",
        "literal_error": lambda: f"expected {context['expected']}, found {value!r}",
    }
    text = texts.get(kind, lambda: f"{found['msg']}, found {value!r}")()
    return Problem(_line(loc, lines, prefix), key_text(_in_file(loc, prefix)), text)


def _unknown_key(loc: KeyPath) -> str:
    section = _SECTIONS.get(str(loc[0]), Scenario) if len(loc) > 1 else Scenario
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


def _misfits(scenario: Scenario, lines: Lines, prefix: KeyPath) -> Iterator[Problem]:
    """What is wrong between sections that are right in themselves."""

    def problem(loc: KeyPath, text: object) -> Problem:
        return Problem(_line(loc, lines, prefix), key_text(_in_file(loc, prefix)), str(text))

    for key, labels in (
        ("fabrics", [section.label for section in scenario.fabrics]),
        ("workload", [section.label for section in scenario.workload]),
    ):
        for index, label in enumerate(labels):
            if label in labels[:index]:
                yield problem((key, index), f"'{label}' occurs twice; give each a 'name' of its own")
    fabrics: list[tuple[int, Fabric]] = []
    for index, section in enumerate(scenario.fabrics):
        try:
            fabric = build(section.spec())
            scale = scenario.scale_for(fabric)
            if scenario.backend == EMULATOR:
                check_scale(fabric, scale)
        except (RailbedError, ValueError) as error:
            yield problem(("fabrics", index), error)
        else:
            fabrics.append((index, fabric))
    sizes = {len(fabric.gpus) for _, fabric in fabrics}
    if len(sizes) > 1:
        listed = ", ".join(str(size) for size in sorted(sizes))
        yield problem(("fabrics",), f"the fabrics have {listed} GPUs; to carry the same flows they must have as many")
    for index, fabric in fabrics:
        for entry, item in enumerate(scenario.workload):
            try:
                check_groups(GROUPINGS[item.group](fabric), item.size, len(fabric.gpus))
            except RailbedError as error:
                yield problem(("workload", entry), f"on fabric '{scenario.fabrics[index].label}': {error}")
        for entry, failure in enumerate(scenario.failures):
            if failure.link == AUTO:
                if not any(link.kind is LinkKind.NIC for link in fabric.links):
                    yield problem(("failures", entry), f"'{scenario.fabrics[index].label}' has no NIC link to choose")
                continue
            try:
                link = fabric.link(failure.link)
            except RailbedError as error:
                near = str(error).removeprefix("this fabric has")
                hint = "; use 'auto' where the fabrics have no link in common" if len(fabrics) > 1 else ""
                text = f"fabric '{scenario.fabrics[index].label}' has{near}{hint}"
                yield problem(("failures", entry, "link"), text)
            else:
                if link.kind is LinkKind.HOST:
                    text = f"{link.id} joins a GPU to its own switch and cannot fail; choose another link"
                    yield problem(("failures", entry, "link"), text)
    for entry, failure in enumerate(scenario.failures):
        restore = failure.restore
        if restore is not None and restore.is_share == failure.at.is_share and restore.value <= failure.at.value:
            text = f"the link comes back at {restore}, but fails at {failure.at}; restore must be later"
            yield problem(("failures", entry, "restore"), text)
