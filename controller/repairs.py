"""Repairs: the rules that are laid over the healthy ones after a failure.

They sit between the level of a healthy rule and the next one: ``+10`` for all destinations of that rule, ``+20`` for
those of one rail, ``+30`` for those of one domain (or of one hash class), ``+40`` for one destination, ``+50`` for one
pair of source class and destination. They are worked out from the failure alone, once for all switches that it leaves
alike (:mod:`controller.alike`), and for a single switch when that is first asked for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice

from controller.alike import Batch
from controller.entries import (
    ABOVE_DOMAIN,
    ABOVE_EXACT,
    ABOVE_PAIR,
    ABOVE_RAIL,
    ABOVE_SPREAD,
    ABOVE_WHOLE,
    ETH_TYPE_IPV4,
    LEVEL_HASHED,
    LEVEL_HASHED_ANY_SOURCE,
    LEVEL_RAIL,
    PRIORITY_CLOSED_PORT,
    Action,
    DecTtl,
    Match,
    Rule,
)
from controller.forwarding import LEAF_KINDS, HashKey
from controller.local_repair import port_action, protected
from controller.placed import placed_repairs
from controller.policy import RoutingPolicy
from controller.routing import Routes
from controller.rules import LazyTables, RuleTables, healthy_rules, stamp_rule, told_apart
from controller.selectors import ALL_BITS, HASH_DOMAINS, Selector, domain_of, domains_alike, exact
from controller.slots import Slot, slot_of
from topologies.model import Gpu, LinkKind, Switch, SwitchKind

Ports = tuple[int, ...]


def rules_for(routes: Routes, version: int | None = None, base: RoutingPolicy | None = None) -> RuleTables:
    """All rules of all switches, by switch id, when ``routes`` are in force as that version.

    The version is by default 1, and 0 if nothing is broken and the healthy rules (of the policy ``base``, by default
    that of ``routes``) place connections as ``routes`` do. Switches that no failure concerns keep their healthy tuple
    itself.
    """
    base = base or routes.policy
    healthy = healthy_rules(routes.fabric, base)
    if not routes.links_down and routes.policy.placement == base.placement:
        return healthy
    in_force = 1 if version is None else version
    laid_over = Repairs(routes, in_force, base)

    def make(switch: Switch) -> tuple[Rule, ...]:
        rules = healthy[switch.id] + laid_over.get(switch.id, ())
        return (*rules, stamp_rule(in_force)) if switch.kind is SwitchKind.GPU else rules

    return LazyTables(routes.fabric, make)


class Repairs(Mapping[str, tuple[Rule, ...]]):
    """By switch id, the rules that only packets of one version obey; only switches that have any are in it.

    They are repairs, and drops at the ports of dead links: a link that has come back stays closed until routes that use
    it are in force.
    """

    def __init__(self, routes: Routes, version: int, base: RoutingPolicy | None = None) -> None:
        """Nothing is worked out yet. ``base`` is the policy of the healthy rules, by default that of ``routes``."""
        self.routes = routes
        self._version = version
        self._base = (base or routes.policy).placement
        self._by_family: dict[tuple[int, ...], tuple[Rule, ...]] = {}

    def __getitem__(self, switch_id: str) -> tuple[Rule, ...]:
        switch = self.routes.fabric.switch_by_id[switch_id]
        rules = self._closed.get(switch_id, ()) + self._placed.get(switch_id, ())
        if not self.routes.isolated(switch):
            rules = self._repairs_of(self.routes.forwarding.order[switch_id], switch) + rules
        if not rules:
            raise KeyError(switch_id)
        return rules

    def __iter__(self) -> Iterator[str]:
        switches = self.routes.fabric.switches
        return (switches[here].id for here in self.concerned if switches[here].id in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @cached_property
    def concerned(self) -> list[int]:
        """Indexes of the switches that may have rules here, in order."""
        routes, order = self.routes, self.routes.forwarding.order
        if routes.dead_gpus:
            return list(range(len(order)))
        found = {order[switch_id] for switch_id in (*self._closed, *self._spread_at, *self._placed)}
        done = set()
        for stand_in in routes.hits:
            family = routes.alike.family(stand_in, 0)
            if family not in done:
                done.add(family)
                found.update(routes.alike.members(stand_in))
        return sorted(found)

    def families(self) -> dict[tuple[int, ...], int]:
        """By what they have in common, one (index) of the concerned switches; rail by rail one leaf and one spine."""
        routes, alike, switches = self.routes, self.routes.alike, self.routes.fabric.switches
        found: dict[tuple[int, ...], int] = {}
        closed = (routes.forwarding.order[switch_id] for switch_id in (*self._closed, *self._spread_at))
        for stand_in in (*closed, *routes.hits):
            # Numbers that are equal modulo 64 recur, so that the first 128 untouched domains have them all.
            for here in islice(alike.members(stand_in), 2 * HASH_DOMAINS):
                switch = switches[here]
                if switch.kind in (SwitchKind.GPU, SwitchKind.NVSWITCH):
                    found.setdefault(alike.family(here, self._told_apart(switch)), here)
                else:
                    touched = alike.is_touched(switch)
                    found.setdefault((-2, here if touched else -1, int(switch.kind in LEAF_KINDS), switch.rail), here)
                    if not touched:
                        break
        return found

    @cached_property
    def _spread_at(self) -> dict[str, set[Gpu]]:
        """By switch id, the destinations of pairs that go another way than the preferred one."""
        found: dict[str, set[Gpu]] = defaultdict(set)
        for switch_id, dst in self.routes.spread.ports:
            found[switch_id].add(dst)
        for switch_id, _, dst in self.routes.spread.pairs:
            found[switch_id].add(dst)
        return found

    @cached_property
    def _placed(self) -> dict[str, tuple[Rule, ...]]:
        if self._base is None and self.routes.policy.placement is None:
            return {}
        return placed_repairs(self.routes, self._version, self._base)

    @cached_property
    def _closed(self) -> dict[str, tuple[Rule, ...]]:
        fabric = self.routes.fabric
        closed: dict[str, tuple[Rule, ...]] = {}
        for link_id in sorted(self.routes.links_down):
            link = fabric.link_by_id[link_id]
            if link.kind is not LinkKind.HOST:
                for end in (link.a, link.b):
                    match = Match(in_port=link.port(end), version=self._version)
                    closed[end] = (*closed.get(end, ()), Rule(PRIORITY_CLOSED_PORT, match, (), "link is down"))
        return closed

    def _told_apart(self, switch: Switch) -> int:
        """The bits of a switch's domain number (plus one) that make its rules its own."""
        spec = self.routes.fabric.spec
        if spec.domains <= HASH_DOMAINS:
            return ALL_BITS
        if switch.kind is SwitchKind.NVSWITCH:
            return HASH_DOMAINS - 1
        return spec.uplinks - 1

    def _repairs_of(self, here: int, switch: Switch) -> tuple[Rule, ...]:
        family = self.routes.alike.family(here, self._told_apart(switch))
        known = self._by_family.get(family)
        if known is None:
            known = self._by_family[family] = _Repair(self.routes, switch, self._version).rules(
                self._changed_at(here, switch)
            )
        return known

    @cached_property
    def _hit_at(self) -> dict[Gpu, set[int]]:
        """By stand-in destination, the stand-ins of the switches where it may have changed."""
        found: dict[Gpu, set[int]] = defaultdict(set)
        for here, destinations in self.routes.hits.items():
            for dst in destinations:
                found[dst].add(here)
        return found

    def _changed_at(self, here: int, switch: Switch) -> list[Batch]:
        """The destinations to which the switch may send by other ports than usual, sorted."""
        alike = self.routes.alike
        batches = {gpu: Batch(gpu, (gpu.domain,)) for gpu in self.routes.dead_gpus}
        for dst, hit_at in self._hit_at.items():
            for sample in alike.samples(switch, dst):
                if alike.switch(here, sample) in hit_at:
                    batches[sample] = alike.batch(switch, sample)
        if self.routes.fabric.spec.domains > HASH_DOMAINS:
            return [batches[dst] for dst in sorted(batches)]
        singles = {Gpu(domain, dst.rail) for dst, batch in batches.items() for domain in batch.domains}
        singles.update(self._spread_at.get(switch.id, ()))
        return [Batch(dst, (dst.domain,)) for dst in sorted(singles)]


class _Repair:
    """Works out the repair rules of one switch."""

    def __init__(self, routes: Routes, switch: Switch, version: int) -> None:
        self.routes = routes
        self.plan = routes.forwarding
        self.switch = switch
        self.version = version
        self._actions: dict[int | None, tuple[Action, ...]] = {None: ()}
        self._class_sizes: dict[tuple[int, int, bool], int] = {}
        self._found_served: dict[Slot, Counter[tuple[int, int]]] | None = None

    def rules(self, batches: Iterable[Batch]) -> tuple[Rule, ...]:
        """Rules for the destinations in ``batches`` whose next hop from here is not the healthy one."""
        single: dict[Slot, list[tuple[Batch, int | None]]] = defaultdict(list)
        hashed: dict[Selector, list[tuple[Batch, Ports, Ports]]] = defaultdict(list)
        for batch in batches:
            healthy = self.plan.healthy_ports(self.switch, batch.sample)
            if self.routes.preferred_ports(self.switch.id, batch.sample) == healthy:
                continue
            for piece in self._pieces(batch):
                ports = self.routes.preferred_ports(self.switch.id, piece.sample)
                if len(ports) > 1:
                    for key, part in self._by_hash_class(piece):
                        hashed[key].append((part, healthy, ports))
                else:
                    slot = slot_of(self.plan, self.switch, piece.sample)
                    single[slot].append((piece, ports[0] if ports else None))
        rules = [rule for key, parts in hashed.items() for rule in self._hashed(key, parts)]
        for slot, entries in single.items():
            rules += self._grouped(slot, entries)
        for (switch_id, src, dst), port in self.routes.spread.pairs.items():
            if switch_id == self.switch.id:
                level = slot_of(self.plan, self.switch, dst).level
                rules.append(self._rule(level + ABOVE_SPREAD, exact(src), exact(dst), port, "repair, spread"))
        if self.switch.kind is SwitchKind.GPU and protected(self.plan):
            rules = [each for rule in rules for each in told_apart(self.plan, self.switch, rule)]
        return tuple(rules)

    def _pieces(self, batch: Batch) -> list[Batch]:
        """Parts of a batch that one healthy rule serves and that have one next hop."""
        kind, domains = self.switch.kind, batch.domains
        if len(domains) == 1:
            return [batch]
        if kind is SwitchKind.NVSWITCH:
            return self.routes.alike.split(batch, HASH_DOMAINS)
        if kind is SwitchKind.GPU:
            return self.routes.alike.split(batch, len(self.plan.nic_ports(self.switch.id)) or 1)
        first, last = (
            slot_of(self.plan, self.switch, Gpu(each, batch.sample.rail)) for each in (domains[0], domains[-1])
        )
        if first != last:
            return _singles(batch)
        uplinks = self.plan.uplinks(self.switch.id)
        if kind in LEAF_KINDS and not set(uplinks).issuperset(
            self.routes.preferred_ports(self.switch.id, batch.sample)
        ):
            # Without uplinks every domain is reached by another port: that of a GPU which relays.
            return _singles(batch)
        return [batch]

    def _by_hash_class(self, batch: Batch) -> list[tuple[Selector, Batch]]:
        pieces = [batch] if len(batch.domains) == 1 else self.routes.alike.split(batch, HASH_DOMAINS)
        return [(self.plan.dst_selector(self.switch, piece.sample), piece) for piece in pieces]

    def _rule(self, priority: int, src: Selector | None, dst: Selector, port: int | None, reason: str) -> Rule:
        why = "partitioned" if port is None else reason
        return Rule(priority, Match(ETH_TYPE_IPV4, src, dst, version=self.version), self._actions_to(port), why)

    def _actions_to(self, port: int | None) -> tuple[Action, ...]:
        actions = self._actions.get(port)
        if actions is None:
            assert port is not None
            way = port_action(self.plan, self.switch, port)
            actions = (way,) if self.switch.kind is SwitchKind.GPU else (DecTtl(), way)
            self._actions[port] = actions
        return actions

    # Where a hash decides

    def _hashed(self, key: Selector, parts: Sequence[tuple[Batch, Ports, Ports]]) -> list[Rule]:
        """Rules by source class for the destinations of one hash class, only where the port changes."""
        first = parts[0]
        alike = len(parts) == 1 or all(part[1:] == first[1:] for part in parts)
        if alike:
            slot = slot_of(self.plan, self.switch, first[0].sample)
            if self._are_all(key, slot, [batch for batch, _, _ in parts]):
                return self._shares(key, key, slot, *first[1:], ABOVE_DOMAIN)
        by_domain: dict[int, list[tuple[Gpu, Ports, Ports]]] = defaultdict(list)
        for batch, healthy, ports in parts:
            for domain in batch.domains:
                by_domain[domain].append((Gpu(domain, batch.sample.rail), healthy, ports))
        rules = []
        for members in by_domain.values():
            slot = slot_of(self.plan, self.switch, members[0][0])
            agree = key.rail_mask == 0 and all(each[1:] == members[0][1:] for each in members)
            if agree and len(members) == self.plan.fabric.spec.rails:
                rules += self._shares(key, domain_of(members[0][0]), slot, *members[0][1:], ABOVE_DOMAIN)
            else:
                for dst, healthy, ports in members:
                    rules += self._shares(key, exact(dst), slot, healthy, ports, ABOVE_EXACT)
        return rules

    def _are_all(self, key: Selector, slot: Slot, batches: Sequence[Batch]) -> bool:
        """Whether ``batches`` are all destinations of a hash class whose healthy rules serve no others (or all)."""
        if slot.level not in (LEVEL_HASHED, LEVEL_RAIL):
            return False
        of_other_rail = self.switch.kind is SwitchKind.LEAF and self.switch.rail not in (-1, batches[0].sample.rail)
        everywhere = of_other_rail or self.switch.kind not in LEAF_KINDS
        place = (key.domain_bits, key.domain_mask, everywhere)
        count = self._class_sizes.get(place)
        if count is None:
            step = key.domain_mask + 1
            alike = range((key.domain_bits - 1) % step, self.plan.fabric.spec.domains, step)
            below = self.plan.domains_below(self.switch.id)
            count = len(alike) if everywhere else sum(domain not in below for domain in alike)
            self._class_sizes[place] = count
        rails = self.plan.fabric.spec.rails if key.rail_mask == 0 else 1
        return sum(len(batch.domains) for batch in batches) == count * rails

    def _shares(
        self, key: Selector, match: Selector, slot: Slot, healthy: Ports, ports: Ports, above: int
    ) -> list[Rule]:
        """Rules for one hash class (or one member) of destinations, whose healthy ``ports`` were ``healthy``."""
        plan, switch, version = self.plan, self.switch, self.version
        seconds: tuple[int, ...] = ()
        if slot.level == LEVEL_HASHED and len(healthy) > 1:
            shares = plan.healthy_shares(switch, key, healthy)
            without_source = LEVEL_HASHED_ANY_SOURCE + above
            if set(ports) <= set(healthy):
                seconds = ports
        else:
            classes = plan.source_classes(switch.id) if switch.kind in LEAF_KINDS else (None,)
            shares = {-1: (list(classes), [-1] * len(classes))}
            without_source = slot.level + above
        with_source = slot.level + above + ABOVE_PAIR - ABOVE_EXACT
        # A dead link of a leaf takes thousands of these, so they are made without the detour of their constructors.
        make, actions = tuple.__new__, self._actions
        rules = []
        for port, (sources, second_of) in shares.items():
            if port in ports:
                continue
            for src, second in zip(sources, second_of, strict=True):
                if src == match:
                    continue
                new = second if second in seconds else plan.choose(switch, HashKey(src, key), ports)
                priority = without_source if src is None else with_source
                found = make(Match, (ETH_TYPE_IPV4, src, match, None, None, version, False, None))
                rules.append(make(Rule, (priority, found, actions.get(new) or self._actions_to(new), "repair, hashed")))
        return rules

    # Where one port is left, or none

    def _grouped(self, slot: Slot, entries: Sequence[tuple[Batch, int | None]]) -> list[Rule]:
        """Few rules for destinations of one healthy rule that now go out of a single port each, or nowhere."""
        if len(entries) == 1 and len(entries[0][0].domains) == 1:
            ((batch, port),) = entries
            return [self._rule(slot.level + ABOVE_EXACT, None, exact(batch.sample), port, "repair")]
        served = self._served(slot)
        if sum(len(batch.domains) for batch, _ in entries) == sum(served.values()):
            ports = {port for _, port in entries}
            if len(ports) == 1:
                return [self._rule(slot.level + ABOVE_WHOLE, None, slot.match, ports.pop(), "repair")]
        rules: list[Rule] = []
        left = self._by_domain(slot, entries, served, rules)
        by_rail: dict[int, list[tuple[Batch, int | None]]] = defaultdict(list)
        for batch, port in left:
            by_rail[batch.sample.rail].append((batch, port))
        changed = Counter({rail: 0 for _, rail in served})
        alone = set()
        for batch, _ in entries:
            changed[batch.sample.rail] += len(batch.domains)
            if len(batch.domains) == 1:
                alone.add(batch.sample)
        for rail, of_rail in by_rail.items():
            unchanged = sum(count for (_, each), count in served.items() if each == rail) - changed[rail]
            if unchanged and slot.level != LEVEL_HASHED and any(len(batch.domains) > 1 for batch, _ in of_rail):
                # Few keep their next hop among many that do not: say so, and let masks name the many.
                few = {Gpu(domain, each) for (domain, each), count in served.items() if each == rail and count == 1}
                if len(few - alone) == unchanged:
                    rules += [self._as_before(slot, dst) for dst in sorted(few - alone)]
                    unchanged = 0
            rules += self._of_rail(slot, of_rail, everybody=not unchanged)
        return rules

    def _as_before(self, slot: Slot, dst: Gpu) -> Rule:
        (port,) = self.plan.healthy_ports(self.switch, dst)
        return self._rule(slot.level + ABOVE_EXACT, None, exact(dst), port, "as before")

    def _by_domain(
        self,
        slot: Slot,
        entries: Sequence[tuple[Batch, int | None]],
        served: Mapping[tuple[int, int], int],
        rules: list[Rule],
    ) -> list[tuple[Batch, int | None]]:
        """Add a rule for every domain whose destinations agree; returns what is left."""
        by_domain: dict[int, list[tuple[Batch, int | None]]] = defaultdict(list)
        left: list[tuple[Batch, int | None]] = []
        for batch, port in entries:
            (by_domain[batch.sample.domain] if len(batch.domains) == 1 else left).append((batch, port))
        for domain, of_domain in by_domain.items():
            everybody = sum(count for (each, _), count in served.items() if each == domain) == len(of_domain)
            ports = {port for _, port in of_domain}
            if everybody and len(of_domain) > 1 and len(ports) == 1:
                selector = slot.match._replace(domain_bits=domain + 1, domain_mask=ALL_BITS)
                rules.append(self._rule(slot.level + ABOVE_DOMAIN, None, selector, ports.pop(), "repair"))
            else:
                left += of_domain
        return left

    def _of_rail(self, slot: Slot, left: Sequence[tuple[Batch, int | None]], everybody: bool) -> list[Rule]:
        """Rules for the rest of a rail's destinations; ``everybody``: none of the rail keeps its next hop."""
        ports = {port for _, port in left}
        if everybody and len(ports) == 1 and sum(len(batch.domains) for batch, _ in left) > 1:
            narrowed = slot.match._replace(rail_bits=left[0][0].sample.rail, rail_mask=ALL_BITS)
            return [self._rule(slot.level + ABOVE_RAIL, None, narrowed, ports.pop(), "repair")]
        masked: dict[Selector, int | None] = {}
        rules = []
        for batch, port in left:
            if everybody and len(batch.domains) > 1 and self.switch.kind is SwitchKind.NVSWITCH:
                masked[domains_alike(batch.sample)] = port
            else:
                for each in _singles(batch):
                    rules.append(self._rule(slot.level + ABOVE_EXACT, None, exact(each.sample), port, "repair"))
        for selector, port in masked.items():
            rules.append(self._rule(slot.level + ABOVE_RAIL, None, selector, port, "repair"))
        return rules

    def _served(self, slot: Slot) -> Counter[tuple[int, int]]:
        """How many destinations a slot serves in a domain (or in a batch of domains) on a rail."""
        rails = range(self.plan.fabric.spec.rails)
        if slot.match.domain_mask == ALL_BITS:
            domain = slot.match.domain_bits - 1
            return Counter({(domain, rail): 1 for rail in rails if slot.match.matches(Gpu(domain, rail))})
        if self._found_served is None:
            self._found_served = defaultdict(Counter)
            for batch in self._everybody():
                pieces = [batch] if self.switch.kind is SwitchKind.NVSWITCH else self._pieces(batch)
                for piece in pieces:
                    served = self._found_served[slot_of(self.plan, self.switch, piece.sample)]
                    served[piece.sample.domain, piece.sample.rail] += len(piece.domains)
        return self._found_served[slot]

    def _everybody(self) -> Iterator[Batch]:
        fabric, alike = self.plan.fabric, self.routes.alike
        if fabric.spec.domains <= HASH_DOMAINS:
            yield from (Batch(gpu, (gpu.domain,)) for gpu in fabric.gpus)
            return
        kept = (Gpu(domain, rail) for domain in alike.kept_domains for rail in range(fabric.spec.rails))
        for dst in dict.fromkeys(map(alike.destination, kept)):
            for sample in alike.samples(self.switch, dst):
                yield alike.batch(self.switch, sample)


def _singles(batch: Batch) -> list[Batch]:
    return [Batch(Gpu(domain, batch.sample.rail), (domain,)) for domain in batch.domains]
