"""The sections of a scenario that say on what it runs: fabrics, their routing, and the scale."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationInfo, WithJsonSchema, field_serializer, field_validator, model_validator

from controller.placement import placement_in
from controller.planning.steering import CHANNELS, PlanMode, Planning
from controller.policy import Relay, RoutingPolicy
from experiments.scenario.fields import OneOf, Section
from topologies.builders import preset_spec
from topologies.model import FabricKind, FabricSpec, fabric_kind
from topologies.presets import PRESETS, preset

PLANS = tuple(mode.value for mode in PlanMode)
MOST_CHANNELS = 64
RELAYS = tuple(relay.value for relay in Relay if relay is not Relay.DIRECT)


class RoutingSection(Section):
    """What the routing is free to choose. A key that a fabric does not give is taken from the whole scenario."""

    relay: Annotated[str | None, OneOf("relay", RELAYS)] = None
    """Who forwards between rails on a rail-only fabric: a GPU of the source's domain, or of the destination's."""
    local_repair: bool | None = None
    """Whether switches send packets around a dead port by themselves until the controller has new rules."""
    bfd: bool | None = None
    """Whether links are watched by probes, so that a blackhole is noticed too."""
    hash_seed: int | None = Field(default=None, ge=0)
    """Seed of the hash that spreads flows over equal paths; the scenario's seed where it is not given."""
    plan: Annotated[str | None, OneOf("plan", PLANS)] = None
    """How connections are planned: ``hashed`` each by itself, ``static`` once, ``dynamic`` and kept up to date."""
    channels: int | None = Field(default=None, ge=1, le=MOST_CHANNELS)
    """Connections of every pair of GPUs of different domains, where there is a plan; 8 where it is not given."""
    placement: str | None = None
    """Path of a placement file, from the scenario's folder: a static plan made elsewhere."""

    @field_validator("placement")
    @classmethod
    def _found(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        path = (Path((info.context or {}).get("folder", Path())) / value).resolve()
        placement_in(path)
        return str(path)

    @property
    def planning(self) -> Planning | None:
        """How the traffic is planned; None where nothing is said about it. Raises PlanningError for keys at odds."""
        if self.plan is None and self.placement is None:
            return None
        mode = PlanMode(self.plan or PlanMode.STATIC.value)
        placement = None if self.placement is None else placement_in(Path(self.placement))
        return Planning(mode, self.channels or CHANNELS, placement)

    def over(self, default: RoutingSection) -> RoutingSection:
        """These keys, and those of ``default`` where they are missing here."""
        return default.model_copy(update=self.model_dump(exclude_none=True))

    def policy(self, seed: int) -> RoutingPolicy:
        """The policy, for a scenario of that seed."""
        return RoutingPolicy(
            relay=Relay(self.relay or Relay.SOURCE.value),
            seed=seed if self.hash_seed is None else self.hash_seed,
            local_repair=self.local_repair is not False,
        )


class FabricSection(Section):
    """One fabric: the fields of :class:`topologies.model.FabricSpec`, or a preset and what differs from it."""

    kind: Annotated[FabricKind, WithJsonSchema({"enum": [kind.value for kind in FabricKind]})]
    domains: int
    rails: int | None = None
    """GPUs in each domain; the preset's where it is not given."""
    preset: Annotated[str | None, WithJsonSchema({"enum": [*PRESETS, None]})] = None
    name: str | None = Field(default=None, min_length=1)
    """What results call the fabric; its kind where it is not given."""
    nic_rate_mbps: float | None = None
    nvlink_rate_mbps: float | None = None
    nvlink_per_nic: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """C_F/C_S: the rate of a GPU's NVLink over that of its NIC, in place of nvlink_rate_mbps."""
    spines: int | None = None
    parallel_links: int | None = None
    oversubscription: float | None = None
    switch_ports: int | None = None
    uplinks: int | None = None
    domains_per_leaf: int | None = None
    routing: RoutingSection = RoutingSection()

    @field_validator("kind", mode="before")
    @classmethod
    def _kind(cls, value: object) -> FabricKind:
        return value if isinstance(value, FabricKind) else fabric_kind(str(value))

    @field_serializer("kind")
    def _kind_text(self, value: FabricKind) -> str:
        return value.value

    @field_validator("preset")
    @classmethod
    def _preset(cls, value: str | None) -> str | None:
        return value if value is None else preset(value).name

    @model_validator(mode="after")
    def _one_nvlink_rate(self) -> FabricSection:
        if self.nvlink_per_nic is not None and self.nvlink_rate_mbps is not None:
            raise ValueError("give either nvlink_rate_mbps or nvlink_per_nic, not both")
        return self

    @property
    def label(self) -> str:
        """Name of the fabric in results."""
        return self.name or self.kind.value

    def spec(self) -> FabricSpec:
        """What to build; raises ValueError without rails and preset."""
        if self.preset is None and self.rails is None:
            raise ValueError("the number of GPUs per domain is missing: give 'rails' or a 'preset'")
        own = ("preset", "name", "kind", "routing", "nvlink_per_nic")
        named = self.model_dump(exclude=set(own), exclude_none=True)
        base: dict[str, object] = {"kind": self.kind.value}
        if self.preset is not None:
            base = preset_spec(self.preset, self.kind, self.domains, self.rails).to_dict()
        spec = FabricSpec.from_dict({**base, **named})
        if self.nvlink_per_nic is not None:
            spec = FabricSpec.from_dict(
                {**spec.to_dict(), "nvlink_rate_mbps": spec.nic_rate_mbps * self.nvlink_per_nic}
            )
        return spec


class ScaleSection(Section):
    """The scale model's two factors; without them the default of the fabric's size."""

    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Real rate over emulated rate."""
    time: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Emulated seconds per real second."""
