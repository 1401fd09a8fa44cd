from controller.routing import Routes
from emulator.hop_probe import bound_late_stamps
from emulator.hops import declared_sightings, disagreement, parse_port_counters
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec

DUMP = """OFPST_PORT reply (OF1.3) (xid=0x2): 4 ports
  port  1: rx pkts=10, bytes=5, drop=0, errs=0, frame=0, over=0, crc=0
           tx pkts=20, bytes=6, drop=0, errs=0, coll=0
           duration=1.5s
  port  2: rx pkts=7, bytes=?, drop=?, errs=?, frame=?, over=?, crc=?
           tx pkts=8, bytes=6, drop=0, errs=0, coll=0
           duration=1.5s
  port LOCAL: rx pkts=99, bytes=0, drop=0, errs=0, frame=0, over=0, crc=0
           tx pkts=98, bytes=0, drop=0, errs=0, coll=0
           duration=1.5s
"""


def declared():
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    path = Routes(fabric).path(fabric.gpu("d0r0"), fabric.gpu("d1r1"))
    assert [gpu.id for gpu in path.relays] == ["d0r1"], "cross-rail traffic is relayed in the source's domain"
    return declared_sightings(path)


def test_a_declared_path_is_a_list_of_interfaces_with_directions():
    assert declared() == (
        ("s0r0-eth1", "in"), ("s0r0-eth3", "out"), ("nv0-eth1", "in"), ("nv0-eth2", "out"),
        ("s0r1-eth3", "in"), ("s0r1-eth2", "out"), ("rail1-eth1", "in"), ("rail1-eth2", "out"),
        ("s1r1-eth2", "in"), ("s1r1-eth1", "out"),
    )  # fmt: skip


def test_port_counters_are_read_without_the_local_port():
    assert parse_port_counters(DUMP) == {1: (10, 20), 2: (7, 8)}


def test_agreement_is_silent():
    path = declared()
    assert disagreement(path, [path, path], dict.fromkeys(path, 2)) == ""
    assert disagreement(path, [path], dict.fromkeys(path, 5)) == "", "other traffic may count too"


def test_every_kind_of_disagreement_is_named():
    path = declared()
    counted = dict.fromkeys(path, 1)
    elsewhere = (*path[:1], ("s0r0-eth2", "out"), *path[2:])
    assert "was at s0r0-eth2 (out) where s0r0-eth3 (out) is declared" in disagreement(path, [elsewhere], counted)
    assert "came in at nv0-eth1 and was not sent on to nv0-eth2" in disagreement(path, [path[:3]], counted)
    assert "vanished on the link between s0r0-eth3 and nv0-eth1" in disagreement(path, [path[:2]], counted)
    assert "seen nowhere" in disagreement(path, [()], counted)
    assert "went on to rail0-eth1" in disagreement(path, [(*path, ("rail0-eth1", "in"))], counted)
    assert "port nv0-eth2 counted 0 packets out" in disagreement(path, [path], {**counted, ("nv0-eth2", "out"): 0})
    assert disagreement(None, [()], {}) == ""
    assert "no path is declared" in disagreement(None, [path[:1]], {})


def test_a_hop_that_the_kernel_stamped_when_it_was_read_keeps_its_place():
    hops = [{"interface": name, "t_s": t_s} for name, t_s in (("a", 0.9), ("b", 0.2), ("c", 0.8), ("d", 0.3))]
    bound_late_stamps(hops)
    assert [hop["interface"] for hop in hops] == ["a", "b", "c", "d"]
    assert [hop["t_s"] for hop in hops] == [0.2, 0.2, 0.3, 0.3]
