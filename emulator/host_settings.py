"""Kernel parameters of every emulated GPU's network namespace."""

CONGESTION_CONTROL = "cubic"
"""Cubic shares a bounded queue evenly; bbr, a common default, starves single flows there."""

HOST_SYSCTLS = {
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/ipv4/tcp_congestion_control": CONGESTION_CONTROL,
    # Larger super-packets mean fewer trips through the switches; below 8 segments flows starve.
    "net/ipv4/tcp_min_tso_segs": "8",
    # A super-packet holds 10 ms of the flow's rate instead of 1.2 ms: 64 kB on an NVLink. Nothing is paced by it.
    "net/ipv4/tcp_pacing_ca_ratio": "1000",
    # The largest window is set per route (emulator.shape.window_bytes); the kernel's own growth of the receive buffer
    # would override it. The sizes do not depend on what the machine has.
    "net/ipv4/tcp_moderate_rcvbuf": "0",
    "net/ipv4/tcp_rmem": "4096 2097152 4194304",
    "net/ipv4/tcp_wmem": "4096 65536 4194304",
    # A reordered or rerouted flow must not be remembered by the next one.
    "net/ipv4/tcp_no_metrics_save": "1",
}
