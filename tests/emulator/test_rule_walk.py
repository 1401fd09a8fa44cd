from emulator.rule_walk import parse_trace

TURNED = """
Flow: udp,in_port=3,vlan_tci=0x0000,dl_src=02:72:00:01:00:00,dl_dst=02:72:00:02:00:00,nw_tos=0,nw_ttl=64
 0. ip, priority 10
    group:2
     -> bucket 0: not live due to port 2
    bucket 1
            set_field:3->ip_dscp
            IN_PORT
Final flow: udp,in_port=3,dl_src=02:72:00:01:05:00,dl_dst=02:72:00:02:08:00,nw_tos=12,nw_ecn=0,nw_ttl=63
Datapath actions: set(ipv4(tos=0xc/0xfc)),17
"""


def test_a_packet_that_is_turned_back_leaves_by_its_port_with_its_new_fields() -> None:
    ports, fields = parse_trace(TURNED, 3)
    assert ports == [3]
    assert fields == {"dl_src": "02:72:00:01:05:00", "dl_dst": "02:72:00:02:08:00", "nw_tos": "12", "nw_ttl": "63"}


def test_drops_copies_and_outputs_to_the_port_it_came_by() -> None:
    assert parse_trace("    drop\nFinal flow: unchanged\nDatapath actions: drop\n", 1) == ([], {})
    assert parse_trace("    output:2\n    output:4\nFinal flow: unchanged\n", 1)[0] == [2, 4]
    assert parse_trace("    output:1\n     >> skipping output to input port\nFinal flow: unchanged\n", 1)[0] == []
