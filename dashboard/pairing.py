"""The same component on another fabric: what is broken here, broken there. Pure."""

from __future__ import annotations

from dashboard.errors import ActionError
from topologies.model import Fabric, Link, LinkKind


def counterpart(fabric: Fabric, target: str, other: Fabric) -> str:
    """The id on ``other`` of what ``target`` is on ``fabric``.

    NICs and NVLinks are matched by their GPU, whatever switch they lead to; everything else by its name. Raises
    ActionError where ``other`` has no such thing, UnknownElementError where ``fabric`` has none.
    """
    same = target in other.gpu_by_id or target in other.switch_by_id
    if not same and target not in fabric.gpu_by_id and target not in fabric.switch_by_id:
        link = fabric.link(target)
        if link.kind in (LinkKind.NIC, LinkKind.NVLINK):
            place = _of_gpu(fabric, link).index(link)
            links = _of_gpu(other, link) if link.a in other.switch_by_id else []
            if place < len(links):
                return links[place].id
        same = target in other.link_by_id
    if not same:
        raise ActionError(f"{target} has no counterpart on the {other.kind.value} fabric: act on one fabric alone")
    return target


def _of_gpu(fabric: Fabric, link: Link) -> list[Link]:
    """The links of that kind of the GPU at one end of ``link``."""
    return [one for one in fabric.links_of(link.a) if one.kind is link.kind]
