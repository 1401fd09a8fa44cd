"""The links of a live fabric under the user's hands: failed, impaired, shown and put right, by id.

Nothing is remembered here; what is shown is read back from the kernel.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from controller.routing import Routes
from emulator import impairments
from emulator.asking import ask
from emulator.devices import check_shaping, links_up, set_link_up, shapes
from emulator.errors import ControllerError, NotAFailureTargetError
from emulator.flaps import Flaps
from emulator.impairments import LinkImpairment
from emulator.netem import Netem
from emulator.northbound_client import put
from emulator.selftest import all_pairs, check_reachability
from emulator.shaping import read_queues
from topologies.model import Failures, Link, LinkKind, SwitchKind

if TYPE_CHECKING:
    from emulator.emulation import Emulation

REPAIR_TIMEOUT_S = 30.0
FOREIGN_REPAIR_TIMEOUT_S = 5.0


class LinkControl:
    """Fails, impairs and restores links of ``emulation``; requests of several threads are taken in turn."""

    def __init__(self, emulation: Emulation) -> None:
        self._emulation = emulation
        self._fabric = emulation.fabric
        self.shapes = shapes(emulation.fabric, emulation.scale)
        self.flaps = Flaps(self.set_link)
        self.drained: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def target(self, link_id: str) -> Link:
        """The link of that id, if it may be failed; raises UnknownElementError or NotAFailureTargetError."""
        link = self._fabric.link(link_id)
        if link.kind is LinkKind.HOST:
            raise NotAFailureTargetError(
                f"link {link_id} joins a GPU to its own switch and cannot fail; choose a NIC, NVLink or fabric link"
            )
        return link

    def targets(self, target_id: str) -> list[Link]:
        """The links that a failure of ``target_id`` means: itself, or all links of a GPU or switch.

        ``rail1`` also stands for all switches of a rail that is a Clos. Raises UnknownElementError or
        NotAFailureTargetError.
        """
        fabric = self._fabric
        if target_id in fabric.gpu_by_id:
            nodes = [fabric.gpu_by_id[target_id].switch_id]
        elif target_id in fabric.switch_by_id:
            nodes = [target_id]
        else:
            rail = target_id.removeprefix("rail")
            kinds = (SwitchKind.RAIL, SwitchKind.RAIL_LEAF)
            nodes = [
                switch.id
                for switch in fabric.switches
                if switch.kind in kinds and rail.isdigit() and switch.rail == int(rail)
            ]
        if not nodes:
            return [self.target(target_id)]
        links = {link.id: link for node in nodes for link in fabric.links_of(node) if link.kind is not LinkKind.HOST}
        return list(links.values())

    def set_target(self, target_id: str, up: bool) -> dict[str, Any]:
        """Take a link, or all links of a GPU or switch, down or up; the result of the last one, and their number.

        All are changed at once; only then the answer of the controller is waited for.
        """
        links = self.targets(target_id)
        changes = self._change(links, up)
        results = [self._answer(change) if change["changed"] else change for change in changes]
        changed = [result for result in results if result["changed"]]
        return {**(changed or results)[-1], "target": target_id, "links": len(links), "links_changed": len(changed)}

    def drain(self, target_id: str, on: bool = True) -> dict[str, Any]:
        """Take a link, or all links of a GPU or switch, out of service, or into it again, though they are up.

        Returns when no switch has a rule left that uses them: ``target``, ``drained``, ``links`` (their ids),
        ``changed`` (whether any route did) and, if so, ``in_force_s``. Raises UnknownElementError,
        NotAFailureTargetError, and ControllerError where the controller does not do it.
        """
        if self._emulation.choice.foreign:
            raise ControllerError(f"{target_id} cannot be drained: this fabric has another controller than Railbed's")
        links = frozenset(link.id for link in self.targets(target_id))
        with self._lock:
            since, asked_s = len(self._emulation.controller.events), time.clock_gettime(time.CLOCK_MONOTONIC)
            wanted = self.drained | links if on else self.drained - links
            answer = put("/drained", sorted(wanted))
            self.drained = wanted
        found = {"target": target_id, "drained": on, "links": sorted(links), "changed": answer["changed"]}
        if answer["changed"]:
            down = links.intersection(answer["links_down"])
            in_force = self._emulation.controller.wait_for(
                lambda event: event["event"] == "repaired" and links.intersection(event["links_down"]) == down,
                REPAIR_TIMEOUT_S,
                f"the switches did not confirm the new rules after {target_id} was drained",
                since,
            )
            found["in_force_s"] = in_force["t_s"] - asked_s
        return found

    def drain_again(self) -> None:
        """Tell a controller that has just started what is out of service."""
        if self.drained:
            put("/drained", sorted(self.drained))

    def impair(self, link_id: str, what: dict[str, Any]) -> dict[str, Any]:
        """Impair one link as ``what`` says; its state as read back from the kernel.

        Keys of ``what``: ``blackhole`` (direction) with ``on``; ``rate_mbps`` (None for its own); any of ``delay_ms``,
        ``jitter_ms`` and ``loss_share``, of which those that are not named stay as they are. Raises ImpairmentError,
        NotEmulatedError, UnknownElementError or NotAFailureTargetError.
        """
        link = self.target(link_id)
        with self._lock:
            if "blackhole" in what:
                direction = impairments.direction_named(what["blackhole"])
                impairments.blackhole(link, direction, self.shapes, what.get("on", True))
            elif "rate_mbps" in what:
                impairments.set_rate(link, what["rate_mbps"], self.shapes)
            else:
                devices = self._emulation.devices
                present = impairments.netem_of_link(read_queues(devices.netlink), link, devices.index)
                self._set_netem(link, replace(present, **what))
        return self.impairment(link_id)

    def _set_netem(self, link: Link, wanted: Netem) -> None:
        devices = self._emulation.devices
        available = impairments.netem_available(ask)
        impairments.set_netem(devices.netlink, link, wanted, devices.index, self.shapes, available)

    def impairment(self, link_id: str) -> dict[str, Any]:
        """What is wrong with one link, as the kernel holds it."""
        return self._read([self.target(link_id)])[0].to_dict()

    def impairments(self) -> list[dict[str, Any]]:
        """All links with something wrong, as the kernel holds it."""
        return [one.to_dict() for one in self._read(list(self._fabric.failure_targets())) if one]

    def _read(self, links: list[Link]) -> list[LinkImpairment]:
        devices = self._emulation.devices
        return impairments.read(devices.netlink, links, links_up(devices, links), devices.index, self.shapes)

    def restore_target(self, target_id: str) -> dict[str, Any]:
        """Undo everything that is wrong with a link, or with all links of a GPU or switch."""
        links = {link.id for link in self.targets(target_id)}
        for one in self.impairments():
            if one["link"] in links:
                self._mend(one)
        return self.set_target(target_id, up=True)

    def reset_impairments(self) -> list[str]:
        """Undo everything that is wrong with any link; ids of the links that were impaired."""
        self.flaps.stop_all()
        wrong = self.impairments()
        for one in wrong:
            self._mend(one)
            if one["down"]:
                self.set_link(one["link"], up=True)
        self.check_healthy()
        return [one["link"] for one in wrong]

    def _mend(self, impairment: dict[str, Any]) -> None:
        """Give a link its own queue and rate again."""
        link = self._fabric.link(impairment["link"])
        with self._lock:
            if impairment["blackhole"]:
                impairments.blackhole(link, impairments.Direction.BOTH, self.shapes, on=False)
            if impairment["rate_mbps"] is not None:
                impairments.set_rate(link, None, self.shapes)
            if impairment["delay_ms"] or impairment["loss_share"]:
                self._set_netem(link, Netem())

    def check_healthy(self) -> None:
        """Raise ShapingError if any link's shaping is not the wanted one."""
        check_shaping(self._emulation.devices, self.shapes)

    def flap(self, link_id: str, down_s: float, up_s: float, count: int) -> dict[str, Any]:
        """Start to take a link down for ``down_s`` and up for ``up_s``, ``count`` times, in the background."""
        self.flaps.start(self.target(link_id).id, down_s, up_s, count)
        return self.flaps.state(link_id)

    def flapping(self, link_id: str) -> dict[str, Any]:
        """How a link flaps now."""
        return self.flaps.state(self.target(link_id).id)

    def stop_flap(self, link_id: str) -> dict[str, Any]:
        """End a link's flapping."""
        self.flaps.stop(self.target(link_id).id)
        return self.flaps.state(link_id)

    def set_link(self, link_id: str, up: bool) -> dict[str, Any]:
        """Take a link down or up and wait until the controller has answered with new rules everywhere.

        The result has ``link``, ``up``, ``changed`` and, if it changed, the monotonic time of the change
        (``changed_s``), the seconds until the kernel had done it (``set_s``), the controller had noticed
        (``detected_s``) and all switches had confirmed (``repaired_s``), ``computed_s``, ``reaction_s`` (from the first
        port message to the last confirmation) and the number of rules. Of a link out of service, of which no route
        makes use, it has ``detected_s`` and ``drained`` alone. Raises ControllerError when the controller does
        not answer in time.
        """
        (change,) = self._change([self.target(link_id)], up)
        return self._answer(change) if change["changed"] else change

    def _change(self, links: list[Link], up: bool) -> list[dict[str, Any]]:
        """Take links down or up in the kernel, one after the other without waiting for anybody."""
        changes = []
        with self._lock:
            states = links_up(self._emulation.devices, links)
            for link in links:
                change: dict[str, Any] = {"link": link.id, "up": up, "changed": states[link.id] != up}
                if change["changed"]:
                    change["since"] = len(self._emulation.controller.events)
                    change["changed_s"] = time.clock_gettime(time.CLOCK_MONOTONIC)
                    set_link_up(self._emulation.devices, link, up)
                    change["set_s"] = time.clock_gettime(time.CLOCK_MONOTONIC) - change["changed_s"]
                changes.append(change)
        return changes

    def _answer(self, change: dict[str, Any]) -> dict[str, Any]:
        """Wait until the controller has answered a change; other links may change meanwhile."""
        link_id, up, since, changed_s = change["link"], change["up"], change.pop("since"), change["changed_s"]
        if self._emulation.choice.foreign:
            return {**change, **self._await_traffic(changed_s)}
        detected = self._emulation.controller.wait_for(
            lambda event: event["event"] == ("link-up" if up else "link-down") and event["link"] == link_id,
            REPAIR_TIMEOUT_S,
            f"the controller did not notice that link {link_id} went {'up' if up else 'down'}",
            since,
        )
        if link_id in self.drained:
            return {**change, "detected_s": detected["t_s"] - changed_s, "drained": True}  # no route hangs on it
        repaired = self._emulation.controller.wait_for(
            lambda event: event["event"] == "repaired" and (link_id in event["links_down"]) != up,
            REPAIR_TIMEOUT_S,
            f"the switches did not confirm the new rules after link {link_id} went {'up' if up else 'down'}",
            since,
        )
        repairs = [event for event in self._emulation.controller.events[since:] if event["event"] == "repair"]
        return {
            **change,
            "detected_s": detected["t_s"] - changed_s,
            "computed_s": sum(event["computed_s"] for event in repairs),
            "repaired_s": repaired["t_s"] - changed_s,
            "reaction_s": repaired["elapsed_s"],
            "rules_added": sum(event["rules_added"] for event in repairs),
            "rules_deleted": sum(event["rules_deleted"] for event in repairs),
        }

    def _await_traffic(self, changed_s: float) -> dict[str, Any]:
        """How a foreign controller does after a change: which pairs that are joined get through, and when all did."""
        down = Failures(links=frozenset(self.links_down()))
        cut_off = set(Routes(self._fabric, down).partitioned())
        joined = [pair for pair in all_pairs(self._fabric) if pair not in cut_off]
        outcome = check_reachability(self._emulation.devices.namespaces, joined, FOREIGN_REPAIR_TIMEOUT_S)
        took_s = time.clock_gettime(time.CLOCK_MONOTONIC) - changed_s
        return {
            "expected_pairs": outcome.tested,
            "reached_pairs": outcome.reached,
            "unreachable": [[src.id, dst.id] for src, dst in outcome.unreachable],
            "traffic_back_s": None if outcome.unreachable else took_s,
        }

    def links_unused(self) -> list[str]:
        """Ids of the links that no route may use, sorted: down, or out of service."""
        return sorted(self.drained.union(self.links_down()))

    def links_down(self) -> list[str]:
        """Ids of the links that the kernel says are down, sorted."""
        states = links_up(self._emulation.devices, list(self._fabric.failure_targets()))
        return sorted(link_id for link_id, up in states.items() if not up)
