"""Names of interfaces, in Mininet's style and within the kernel's limit."""

from __future__ import annotations

from emulator.errors import NameTooLongError
from topologies.model import Fabric, Link

MAX_INTERFACE_NAME = 15
HOST_INTERFACE = "eth0"


def interface_name(switch_id: str, port: int) -> str:
    """Name of a switch's interface; raises NameTooLongError above 15 characters."""
    name = f"{switch_id}-eth{port}"
    if len(name) > MAX_INTERFACE_NAME:
        raise NameTooLongError(
            f"the interface name '{name}' has {len(name)} characters, the kernel takes {MAX_INTERFACE_NAME}: "
            "use fewer domains or rails"
        )
    return name


def link_interfaces(link: Link) -> tuple[str, str]:
    """Names of the two interfaces of a link between switches, the ``a`` end first."""
    return interface_name(link.a, link.a_port), interface_name(link.b, link.b_port)


def check_names(fabric: Fabric) -> None:
    """Raise NameTooLongError for the first interface of ``fabric`` whose name the kernel would refuse."""
    for switch_id, port in fabric.link_by_port:
        interface_name(switch_id, port)
