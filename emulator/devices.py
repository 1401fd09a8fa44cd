"""Network devices of a fabric, made in bulk from one process: a namespace per GPU, a veth pair per link.

Everything goes through netlink; no shell and no `ip` process is started, which is what makes start-up fast.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from pyroute2 import IPRoute, NetlinkError

from emulator.errors import out_of_room
from emulator.host_settings import HOST_SYSCTLS
from emulator.kernel import inside_network_namespace, new_network_namespace
from emulator.names import HOST_INTERFACE, check_names, interface_name, link_interfaces
from emulator.shape import Shape, shape, window_bytes
from emulator.shaping import check_shapes, set_shapes
from topologies.addresses import DOMAIN_PREFIX_BITS, NETWORK_PREFIX_BITS, ipv4, mac
from topologies.model import Fabric, Gpu, Link, LinkKind
from topologies.scale import Scale, link_rate_mbps

MTU_BYTES = 1500
IFA_F_NOPREFIXROUTE = 0x200

MOST_ASKED_SINGLY = 8
"""Up to so many links are asked for by number; a list of all interfaces takes 20 ms at 256 GPUs."""

_NO_ROOM = (errno.ENOMEM, errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOBUFS)


@dataclass
class Devices:
    """The devices of one fabric in the network namespace of the calling process, and the GPUs' namespaces."""

    netlink: IPRoute
    namespaces: dict[str, int] = field(default_factory=dict)
    """Network namespace of each GPU (an open descriptor), by GPU id."""
    index: dict[str, int] = field(default_factory=dict)
    """Kernel index of each switch-side interface, by name."""

    def close(self) -> None:
        """Let go of the namespaces; the kernel removes them and the veth pairs that end there."""
        for namespace in self.namespaces.values():
            os.close(namespace)
        self.namespaces.clear()
        self.netlink.close()


def create_devices(fabric: Fabric, scale: Scale) -> Devices:
    """Make namespaces, veth pairs, addresses and routes for ``fabric``; everything is up when this returns.

    Must be called in the fabric's own network namespace. Raises CapacityError when the kernel has no room.
    """
    check_names(fabric)
    write_sysctls({"net/ipv6/conf/default/disable_ipv6": "1", "net/ipv6/conf/all/disable_ipv6": "1"})
    devices = Devices(IPRoute())
    try:
        netlink = devices.netlink
        netlink.link("set", index=1, state="up")
        for gpu in fabric.gpus:
            devices.namespaces[gpu.id] = new_network_namespace()
        for link in fabric.links:
            if link.kind is LinkKind.HOST:
                _add_host_link(netlink, link, devices.namespaces[link.a], fabric.gpu_by_id[link.a])
            else:
                name, peer_name = link_interfaces(link)
                netlink.link("add", ifname=name, kind="veth", mtu=MTU_BYTES, peer={"ifname": peer_name})
        for message in netlink.get_links():
            if message["index"] != 1:
                devices.index[message.get_attr("IFLA_IFNAME")] = message["index"]
                netlink.link("set", index=message["index"], state="up")
        for gpu in fabric.gpus:
            _configure_host(devices.namespaces[gpu.id], gpu, _windows(fabric, scale, gpu))
    except (OSError, NetlinkError) as error:
        devices.close()
        code = _code(error)
        if code in _NO_ROOM:
            wanted = f"hold the {2 * len(fabric.links)} interfaces of this fabric"
            raise out_of_room(OSError(code, os.strerror(code)), wanted) from error
        raise
    return devices


def _add_host_link(netlink: IPRoute, link: Link, namespace: int, gpu: Gpu) -> None:
    netlink.link(
        "add",
        ifname=interface_name(link.b, link.b_port),
        kind="veth",
        mtu=MTU_BYTES,
        peer={
            "ifname": HOST_INTERFACE,
            "address": mac(gpu.domain, gpu.rail),
            "mtu": MTU_BYTES,
            "net_ns_fd": namespace,
        },
    )


def _windows(fabric: Fabric, scale: Scale, gpu: Gpu) -> dict[str, int]:
    """Largest TCP window by destination network: the GPU's own domain (NVLink), everybody else (NIC)."""
    nic_mbps = scale.emulated_rate_mbps(fabric.spec.nic_rate_mbps / fabric.spec.uplinks)
    nvlink_mbps = scale.emulated_rate_mbps(fabric.spec.nvlink_rate_mbps)
    domain_network = ipv4(gpu.domain, 0)
    return {
        f"{domain_network}/{DOMAIN_PREFIX_BITS}": window_bytes(nvlink_mbps),
        f"10.0.0.0/{NETWORK_PREFIX_BITS}": window_bytes(nic_mbps),
    }


def _configure_host(namespace: int, gpu: Gpu, windows: dict[str, int]) -> None:
    """Address, routes and kernel settings inside one GPU's namespace."""
    with inside_network_namespace(namespace):
        write_sysctls(HOST_SYSCTLS)
        with IPRoute() as netlink:
            index = netlink.link_lookup(ifname=HOST_INTERFACE)[0]
            netlink.link("set", index=1, state="up")
            address = ipv4(gpu.domain, gpu.rail)
            netlink.addr("add", index=index, address=address, prefixlen=NETWORK_PREFIX_BITS, flags=IFA_F_NOPREFIXROUTE)
            netlink.link("set", index=index, state="up")
            for network, window in windows.items():
                netlink.route("add", dst=network, oif=index, prefsrc=address, scope="link", metrics={"window": window})


def write_sysctls(values: dict[str, str]) -> None:
    """Set kernel parameters of the calling thread's network namespace; those that this kernel lacks are left out."""
    for name, value in values.items():
        path = Path("/proc/sys") / name
        if path.exists():
            path.write_text(value)


def shapes(fabric: Fabric, scale: Scale) -> dict[str, Shape]:
    """The wanted shape of every shaped interface, by name: both ends of NIC, NVLink and fabric links."""
    return {
        name: shape(link_rate_mbps(link, scale))
        for link in fabric.links
        if link.kind is not LinkKind.HOST
        for name in link_interfaces(link)
    }


def shape_links(devices: Devices, wanted: dict[str, Shape]) -> None:
    """Shape the named interfaces and read the shaping back; raises ShapingError where the kernel holds another.

    Must come after the interfaces were added to Open vSwitch, which deletes what it finds.
    """
    set_shapes(wanted)
    check_shaping(devices, wanted)


def check_shaping(devices: Devices, wanted: dict[str, Shape]) -> None:
    """Raise ShapingError if the kernel's shaping of a named interface is not the wanted one."""
    by_index = {devices.index[name]: one for name, one in wanted.items()}
    check_shapes(devices.netlink, by_index, {devices.index[name]: name for name in wanted})


def set_link_up(devices: Devices, link: Link, up: bool) -> None:
    """Take one end of a link down or up; the other end sees its carrier go or come. Addresses and shaping stay."""
    name, _ = link_interfaces(link)
    devices.netlink.link("set", index=devices.index[name], state="up" if up else "down")


def links_up(devices: Devices, links: Collection[Link]) -> dict[str, bool]:
    """Whether the kernel says that a link can carry traffic, by link id."""
    netlink = devices.netlink
    if len(links) <= MOST_ASKED_SINGLY:
        wanted = [devices.index[name] for link in links for name in link_interfaces(link)]
        messages = [message for index in wanted for message in netlink.link("get", index=index)]
    else:
        messages = netlink.get_links()
    state = {message.get_attr("IFLA_IFNAME"): message.get_attr("IFLA_OPERSTATE") == "UP" for message in messages}
    return {link.id: all(state.get(name, False) for name in link_interfaces(link)) for link in links}


def _code(error: Exception) -> int:
    return getattr(error, "errno", None) or getattr(error, "code", None) or 0
