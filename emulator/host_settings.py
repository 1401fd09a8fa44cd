"""Kernel parameters of every emulated GPU's network namespace."""

CONGESTION_CONTROL = "cubic"
"""Cubic shares a bounded queue evenly; bbr, a common default, starves single flows there."""

HOST_SYSCTLS = {
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/ipv4/tcp_congestion_control": CONGESTION_CONTROL,
    # Larger super-packets mean fewer trips through the switches; below 8 segments flows starve.
    "net/ipv4/tcp_min_tso_segs": "8",
    # A reordered or rerouted flow must not be remembered by the next one.
    "net/ipv4/tcp_no_metrics_save": "1",
}
