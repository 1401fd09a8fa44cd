"""Which capabilities this machine has; each is tried where it costs nothing, none is taken from a list of versions."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from emulator.asking import Answer, Ask, ask, held_qdiscs
from emulator.openvswitch import kernel_datapath_available
from topologies.capabilities import CONGESTION_CONTROL_PREFIX, Capability

AVAILABLE_CONGESTION_CONTROLS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")

QDISCS = {
    Capability.SHAPING.value: "htb default 1",
    Capability.DELAY.value: "netem delay 1ms",
    Capability.JITTER.value: "netem delay 2ms 1ms",
    Capability.LOSS.value: "netem loss 1%",
}

# The namespaces end with the shell, and with them the two daemons.
_PRIVATE = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
_FAILOVER_SCRIPT = """
set -e
d=$(mktemp -d); trap 'rm -r "$d"' EXIT
export OVS_RUNDIR="$d" OVS_LOGDIR="$d" OVS_DBDIR="$d" OVS_SYSCONFDIR="$d"
ovsdb-tool create "$d/conf.db"
ovsdb-server "$d/conf.db" --remote="punix:$d/db.sock" --detach --pidfile
ovs-vsctl --no-wait init
ovs-vswitchd --enable-dummy --detach --pidfile
ovs-vsctl --timeout=5 add-br probe0 -- set bridge probe0 datapath_type=dummy protocols=OpenFlow13
ovs-ofctl -O OpenFlow13 add-group probe0 group_id=1,type=ff,bucket=watch_port:1,output:1
ovs-ofctl -O OpenFlow13 dump-groups probe0
"""


@lru_cache(maxsize=1)
def probe() -> frozenset[str]:
    """The capabilities of this machine, by name; takes about a second, once per process. Needs root.

    Without root, or where namespaces cannot be made, what would have been tried in one counts as missing.
    """
    return probed(ask, kernel_datapath_available(), AVAILABLE_CONGESTION_CONTROLS)


def probed(ask: Ask, kernel_datapath: bool, congestion_controls: Path) -> frozenset[str]:
    """The capabilities by what programs answer to ``ask`` and the kernel's list of congestion controls."""
    qdiscs = held_qdiscs(QDISCS, ask)
    held = set() if isinstance(qdiscs, Answer) else set(qdiscs)
    if has_fast_failover(ask):
        held.add(Capability.FAST_FAILOVER.value)
    if kernel_datapath:
        held.add(Capability.KERNEL_DATAPATH.value)
    if congestion_controls.exists():
        held |= {CONGESTION_CONTROL_PREFIX + name for name in congestion_controls.read_text().split()}
    return frozenset(held)


def has_fast_failover(ask: Ask) -> bool:
    """Whether the installed Open vSwitch keeps a group that fails over by itself; tried on one of its own."""
    answer = ask([*_PRIVATE, "sh", "-c", _FAILOVER_SCRIPT])
    return answer.code == 0 and "type=ff" in answer.text
