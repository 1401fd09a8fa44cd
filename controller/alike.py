"""What a failure leaves alike: domains and leaves that nothing broken touches can be exchanged for one another.

An exchange of two untouched domains below the same leaves, or of two untouched *units* (the leaves number u of all
rails, with their domains), maps the fabric and its failures onto themselves. So what holds for one of them holds for
all, and routes need to be searched only among the touched ones and one or two *stand-ins* for the rest. A repair
therefore costs what the failure touches, whatever the size of the fabric.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from controller.forwarding import SPINE_KINDS, Forwarding
from topologies.model import Gpu, Switch, SwitchKind


class Batch(NamedTuple):
    """Destinations on one rail of several domains that lie alike to one switch. ``sample`` is one of them."""

    sample: Gpu
    domains: Sequence[int]


class Alike:
    """Stand-ins for the untouched parts of one fabric under one set of dead links."""

    def __init__(self, plan: Forwarding, links_down: Iterable[str]) -> None:
        """Find out what the dead links touch."""
        self.plan = plan
        spec = plan.fabric.spec
        self._count, self._rails = spec.domains, spec.rails
        self._gpus = spec.domains * spec.rails
        self._per_unit = spec.domains_per_leaf or spec.domains
        self.domains: set[int] = set()
        """Domains with a dead link at their NVSwitch or at one of their GPUs."""
        self.units: set[int] = set()
        """Units with such a domain, or with a dead link at one of their leaves."""
        self._spines: set[int] = set()
        for link_id in links_down:
            link = plan.fabric.link_by_id[link_id]
            for end in (link.a, link.b):
                if end in plan.order:
                    self._touch(plan.fabric.switch_by_id[end])
        self.units.update(map(self.unit, self.domains))
        self._first: dict[int, int] = {}
        self._second: dict[int, int] = {}
        for unit in self.units:
            self._stand_for(unit)
        free = list(islice(self._free_units(), 2))
        for unit in free:
            self._stand_for(unit)
        self._free_unit = free[0] if free else -1
        self._other_free_unit = free[-1] if free else -1
        self._spine_for: dict[tuple[int, int], int] = {}
        self._domains_of: dict[int, list[int]] = {}
        self._batches: dict[tuple[int, int, bool], list[int]] = {}
        self._parts: dict[tuple[int, int], tuple[Sequence[int], list[list[int]]]] = {}
        self.kept_domains = sorted(self.domains | set(self._first.values()) | set(self._second.values()))

    def _touch(self, switch: Switch) -> None:
        if switch.kind in (SwitchKind.GPU, SwitchKind.NVSWITCH):
            self.domains.add(switch.domain)
        elif switch.kind in SPINE_KINDS:
            self._spines.add(self.plan.order[switch.id])
        else:
            self.units.add(switch.unit)

    def unit(self, domain: int) -> int:
        """The unit of a domain."""
        return domain // self._per_unit

    def _in_unit(self, unit: int) -> range:
        return range(unit * self._per_unit, min((unit + 1) * self._per_unit, self._count))

    def _stand_for(self, unit: int) -> None:
        free = list(islice((domain for domain in self._in_unit(unit) if domain not in self.domains), 2))
        if free:
            self._first[unit] = free[0]
        if len(free) > 1:
            self._second[unit] = free[1]

    # Stand-ins

    def destination(self, dst: Gpu) -> Gpu:
        """The destination that stands for ``dst``."""
        if dst.domain in self.domains:
            return dst
        unit = self.unit(dst.domain)
        return Gpu(self._first[unit if unit in self.units else self._free_unit], dst.rail)

    def switch(self, here: int, dst: Gpu) -> int:
        """Index of the switch that stands for the one with index ``here``, on the way to ``dst``."""
        if here < self._gpus:
            domain, rail = divmod(here, self._rails)
            return self._domain(domain, dst.domain) * self._rails + rail
        if here < self._gpus + self._count:
            return self._gpus + self._domain(here - self._gpus, dst.domain)
        switch = self.plan.fabric.switches[here]
        if switch.kind in SPINE_KINDS:
            if here in self._spines:
                return here
            return self._spine_for.setdefault((switch.rail, switch.plane), here)
        return self.plan.leaf_at[switch.plane, switch.rail, self._unit(switch.unit, self.unit(dst.domain))]

    def _unit(self, unit: int, of_dst: int) -> int:
        if unit in self.units:
            return unit
        return self._free_unit if unit == of_dst or of_dst in self.units else self._other_free_unit

    def _domain(self, domain: int, of_dst: int) -> int:
        if domain in self.domains:
            return domain
        unit = self.unit(domain)
        same_unit = unit == self.unit(of_dst)
        stand_in = self._unit(unit, self.unit(of_dst))
        if same_unit and domain != of_dst and of_dst not in self.domains:
            return self._second[stand_in]
        return self._first[stand_in]

    def kept(self) -> dict[int, list[tuple[int, str]]]:
        """The fabric of stand-ins: by switch index, (index of a neighbour, link id)."""
        near: dict[int, list[tuple[int, str]]] = {}
        plan = self.plan
        gpus = [domain * self._rails + rail for domain in self.kept_domains for rail in range(self._rails)]
        leaves: dict[int, None] = {}
        for here in gpus:
            for _, there, link_id in plan.neighbours[here]:
                near.setdefault(here, []).append((there, link_id))
                near.setdefault(there, []).append((here, link_id))
                if there >= self._gpus + self._count:
                    leaves[there] = None
        for here in leaves:
            for there, link_id in plan.spines_above(here):
                switch = plan.fabric.switches[there]
                if there in self._spines or self._spine_for.setdefault((switch.rail, switch.plane), there) == there:
                    near[here].append((there, link_id))
                    near.setdefault(there, []).append((here, link_id))
        return near

    # Who is alike

    def is_touched(self, switch: Switch) -> bool:
        """Whether a leaf or spine can be exchanged for no other."""
        if switch.kind in SPINE_KINDS:
            return self.plan.order[switch.id] in self._spines
        return switch.unit in self.units

    def family(self, here: int, told_apart: int) -> tuple[int, ...]:
        """What switches have in common whose repair rules are the same.

        ``told_apart`` is a mask of those bits of the domain number plus one that a choice of the switch looks at.
        """
        if here >= self._gpus + self._count:
            return (here,)
        domain, rail = divmod(here, self._rails) if here < self._gpus else (here - self._gpus, -1)
        if domain in self.domains:
            return (here,)
        unit = self.unit(domain)
        return (rail, unit if unit in self.units else -1, (domain + 1) & told_apart)

    def members(self, stand_in: int) -> Iterable[int]:
        """Indexes of all switches that the switch ``stand_in`` stands for, itself included."""
        if stand_in >= self._gpus + self._count:
            return self._leaves_like(stand_in)
        at_gpu = stand_in < self._gpus
        domain, rail = divmod(stand_in, self._rails) if at_gpu else (stand_in - self._gpus, 0)
        if domain in self.domains:
            return (stand_in,)
        return (
            each * self._rails + rail if at_gpu else self._gpus + each for each in self._domains_like(self.unit(domain))
        )

    def _leaves_like(self, stand_in: int) -> Iterable[int]:
        switch = self.plan.fabric.switches[stand_in]
        if switch.kind in SPINE_KINDS:
            if stand_in in self._spines:
                return (stand_in,)
            alike = (switch.kind, switch.rail, switch.plane)
            return (
                index
                for index in range(self._gpus + self._count, len(self.plan.order))
                if index not in self._spines
                and (each := self.plan.fabric.switches[index])
                and (each.kind, each.rail, each.plane) == alike
            )
        if switch.unit in self.units:
            return (stand_in,)
        return (self.plan.leaf_at[switch.plane, switch.rail, unit] for unit in self._free_units())

    def _domains_like(self, unit: int) -> list[int]:
        """The untouched domains that are alike to those of ``unit``: of this unit, or of all untouched ones."""
        key = unit if unit in self.units else -1
        known = self._domains_of.get(key)
        if known is None:
            if key >= 0:
                known = [domain for domain in self._in_unit(unit) if domain not in self.domains]
            else:
                known = [domain for unit in self._free_units() for domain in self._in_unit(unit)]
            self._domains_of[key] = known
        return known

    def _free_units(self) -> Iterable[int]:
        return (unit for unit in range(self.unit(self._count - 1) + 1) if unit not in self.units)

    def samples(self, switch: Switch, dst: Gpu) -> list[Gpu]:
        """Of the destinations that the stand-in ``dst`` stands for, one for each way to lie to ``switch``.

        There are at most three ways: in the switch's own domain, elsewhere in its unit, in other units.
        """
        if dst.domain in self.domains:
            return [dst]
        own_unit = self._own_unit(switch)
        unit = self.unit(dst.domain)
        free = unit not in self.units
        found = []
        if own_unit == unit or (free and self._is_free(own_unit)):
            if switch.domain >= 0 and switch.domain not in self.domains:
                found.append(switch.domain)
            near = (each for each in self._in_unit(own_unit) if each not in self.domains and each != switch.domain)
            found += islice(near, 1)
        if free:
            found += [each * self._per_unit for each in islice((u for u in self._free_units() if u != own_unit), 1)]
        elif own_unit != unit:
            found.append(self._first[unit])
        return [Gpu(domain, dst.rail) for domain in found]

    def _own_unit(self, switch: Switch) -> int:
        if switch.kind in SPINE_KINDS:
            return -1
        return switch.unit if switch.domain < 0 else self.unit(switch.domain)

    def _is_free(self, unit: int) -> bool:
        return unit >= 0 and unit not in self.units

    def batch(self, switch: Switch, sample: Gpu) -> Batch:
        """All destinations that lie to ``switch`` as ``sample`` (of :meth:`samples`) does."""
        if sample.domain in self.domains or sample.domain == switch.domain:
            return Batch(sample, (sample.domain,))
        own_unit, unit = self._own_unit(switch), self.unit(sample.domain)
        if unit != own_unit and (unit in self.units or not self._is_free(own_unit)):
            return Batch(sample, self._domains_like(unit))
        key = (own_unit, switch.domain, unit == own_unit)
        if key not in self._batches:
            if unit == own_unit:
                among = [each for each in self._in_unit(unit) if each not in self.domains]
                self._batches[key] = [each for each in among if each != switch.domain]
            else:
                self._batches[key] = [each for each in self._domains_like(unit) if self.unit(each) != own_unit]
        return Batch(sample, self._batches[key])

    def split(self, batch: Batch, modulus: int) -> list[Batch]:
        """Parts of a batch whose domains are equal modulo ``modulus``."""
        if modulus == 1:
            return [batch]
        # Batches of many rails and switches share their domains, which are kept here so that no other gets the id.
        kept, parts = self._parts.get((id(batch.domains), modulus), (None, []))
        if kept is not batch.domains:
            by_rest: dict[int, list[int]] = {}
            for domain in batch.domains:
                by_rest.setdefault(domain % modulus, []).append(domain)
            parts = list(by_rest.values())
            self._parts[id(batch.domains), modulus] = batch.domains, parts
        return [Batch(Gpu(domains[0], batch.sample.rail), domains) for domains in parts]
