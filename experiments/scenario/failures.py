"""The section of a scenario that says what fails, and the failures of links that it stands for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator, model_validator

from experiments.scenario.fields import FROM_LIST, Duration, OneOf, Section, Share, When
from experiments.units import Moment
from simulator.paths import Router, busiest_link
from topologies.model import NO_FAILURES, Fabric, LinkKind, SwitchKind
from workloads.errors import ScheduleError
from workloads.failures import DIRECTIONS, FailureKind, LinkFailure
from workloads.schedule import Schedule

AUTO = "auto"
"""In place of a link id: the NIC link that carries most bytes of the running schedule."""

AUTO_KINDS = {AUTO: LinkKind.NIC, "auto-nvlink": LinkKind.NVLINK, "auto-fabric": LinkKind.FABRIC}
"""Words in place of a link id, and the kind of link that is chosen."""

_NAMES = {LinkKind.NIC: "NIC link", LinkKind.NVLINK: "NVLink", LinkKind.FABRIC: "leaf-spine link"}

FLAP = "flap"
KINDS = (*(kind.value for kind in FailureKind), FLAP)
TARGETS = ("link", "gpu", "switch", "rail", "nvswitch")

_OWN_KEYS = {
    "direction": FailureKind.BLACKHOLE.value,
    "rate": FailureKind.DEGRADE.value,
    "delay": FailureKind.DELAY.value,
    "loss": FailureKind.LOSS.value,
    "down": FLAP,
    "up": FLAP,
    "count": FLAP,
}
"""Keys that only one kind of failure has."""


class FailureSection(Section):
    """Something that fails during every run with failures, and is whole again at ``restore`` or not at all."""

    link: str | None = None
    """A link's id, or ``auto``, ``auto-nvlink``, ``auto-fabric``: the NIC link, NVLink or leaf-spine link that carries
    most bytes of the running schedule. Without any target: ``auto``."""
    gpu: str | None = None
    """A GPU: all its links."""
    switch: str | None = None
    """A switch: all its links."""
    rail: int | None = Field(default=None, ge=0)
    """All links of the switches that the GPUs of this rail are joined to."""
    nvswitch: int | None = Field(default=None, ge=0)
    """The NVSwitch of this domain: all its links."""
    kind: Annotated[str, OneOf("kind", KINDS)] = FailureKind.DOWN.value
    at: When
    restore: When | None = None
    direction: Annotated[str | None, OneOf("direction", DIRECTIONS)] = None
    """Of a blackhole: both, out (away from the GPU or leaf) or in."""
    rate: Share | None = Field(default=None, gt=0, lt=1)
    """What a degraded link keeps of its rate."""
    delay: Duration | None = None
    loss: Share | None = Field(default=None, gt=0, le=1)
    down: Duration | None = None
    """How long a flapping link is down each time."""
    up: Duration | None = None
    count: int | None = Field(default=None, ge=1, le=1000)
    """How often it goes down."""
    fabrics: Annotated[tuple[str, ...], FROM_LIST] | None = None
    """Names of the fabrics on which it happens; all where it is not given."""

    @field_validator("restore")
    @classmethod
    def _later(cls, restore: Moment | None, info: ValidationInfo) -> Moment | None:
        at = info.data.get("at")
        if restore is not None and at is not None and restore.is_share == at.is_share and restore.value <= at.value:
            raise ValueError(f"the link comes back at {restore}, but fails at {at}; restore must be later")
        return restore

    @model_validator(mode="after")
    def _fits_together(self) -> FailureSection:
        given = [key for key in TARGETS if getattr(self, key) is not None]
        if len(given) > 1:
            raise ValueError(f"a failure has one target, but here are {' and '.join(given)}; make it several failures")
        for key, kind in _OWN_KEYS.items():
            if getattr(self, key) is not None and kind != self.kind:
                raise ValueError(f"'{key}' belongs to the kind '{kind}', but the kind here is '{self.kind}'")
        needed = {"degrade": ("rate",), "delay": ("delay",), "loss": ("loss",), FLAP: ("down", "up", "count")}
        missing = [key for key in needed.get(self.kind, ()) if getattr(self, key) is None]
        if missing:
            raise ValueError(f"the kind '{self.kind}' needs {' and '.join(repr(key) for key in missing)}")
        if self.kind == FLAP and self.restore is not None:
            raise ValueError("a flapping link comes back after 'count' times; leave 'restore' out")
        return self

    def on(self, label: str) -> bool:
        """Whether it happens on the fabric of that name."""
        return self.fabrics is None or label in self.fabrics

    def check(self, fabric: Fabric) -> None:
        """Raise RailbedError if ``fabric`` has no such thing to fail."""
        self._links(fabric)

    def failures(self, fabric: Fabric, schedule: Schedule, router: Router, duration_s: float) -> list[LinkFailure]:
        """The failures of links in a run of ``schedule`` that is predicted to last ``duration_s`` emulated seconds."""
        link_ids = self._links(fabric)
        if link_ids is None:
            kind = AUTO_KINDS[self.link or AUTO]
            link_ids = [busiest_link(fabric, schedule, router(NO_FAILURES), kind)]
        at_s = self.at.seconds(duration_s)
        restore_s = self.restore.seconds(duration_s) if self.restore else None
        times = [(at_s, restore_s)]
        kind_of_each = FailureKind.DOWN
        if self.kind == FLAP:
            assert self.down is not None
            assert self.up is not None
            period_s = self.down + self.up
            times = [(at_s + turn * period_s, at_s + turn * period_s + self.down) for turn in range(self.count or 0)]
        else:
            kind_of_each = FailureKind(self.kind)
        return [
            LinkFailure(
                link_id, begins_s, ends_s, kind_of_each, self.direction or DIRECTIONS[0],
                1.0 if self.rate is None else self.rate, self.delay or 0.0, self.loss or 0.0,
            )
            for link_id in link_ids
            for begins_s, ends_s in times
        ]  # fmt: skip

    def _links(self, fabric: Fabric) -> list[str] | None:
        """Ids of the links that fail; None where the schedule decides."""
        link = self.link if self.link is not None or self._node_given else AUTO
        if link in AUTO_KINDS:
            kind = AUTO_KINDS[link]
            if not any(one.kind is kind for one in fabric.links):
                raise ScheduleError(f"this fabric has no {_NAMES[kind]} to choose")
            return None
        if link is not None:
            found = fabric.link(link)
            if found.kind is LinkKind.HOST:
                raise ScheduleError(f"{found.id} joins a GPU to its own switch and cannot fail; choose another link")
            return [found.id]
        links = {
            one.id for node in self._nodes(fabric) for one in fabric.links_of(node) if one.kind is not LinkKind.HOST
        }
        return [one.id for one in fabric.links if one.id in links]

    @property
    def _node_given(self) -> bool:
        return any(getattr(self, key) is not None for key in TARGETS[1:])

    def _nodes(self, fabric: Fabric) -> list[str]:
        if self.gpu is not None:
            return [fabric.gpu(self.gpu).switch_id]
        if self.switch is not None:
            fabric.links_of(self.switch)
            return [self.switch]
        if self.nvswitch is not None:
            fabric.links_of(f"nv{self.nvswitch}")
            return [f"nv{self.nvswitch}"]
        kinds = (SwitchKind.RAIL, SwitchKind.RAIL_LEAF, SwitchKind.LEAF)
        found = [one.id for one in fabric.switches if one.kind in kinds and one.rail == self.rail]
        if not found:
            raise ScheduleError(f"this fabric has no switches of rail {self.rail}; name a switch")
        return found
