"""Rules as OpenFlow messages: encoded to bytes and read back, as a switch would report them."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.controller.interpreters import ROOT, interpreter

# Runs under the framework's own interpreter, which has nothing else of ours installed.
ROUND_TRIP = """
import json, sys
from controller import framework, openflow
from controller.framework import PROTOCOL as datapath
from controller.routing import Routes
from controller.policy import RoutingPolicy
from controller.repairs import rules_for
from controller.rules import groups_for
from topologies.builders import build
from topologies.model import FabricSpec, Failures

ofproto, parser = datapath.ofproto, datapath.ofproto_parser
fabric = build(FabricSpec.from_dict(json.loads(sys.argv[1])))
down = frozenset(sys.argv[2:])
count = 0
for rules in rules_for(Routes(fabric, Failures(links=down))).values():
    for rule in rules[-40:]:
        message = openflow.flow_add(datapath, rule, 5)
        message.set_xid(1)
        message.serialize()
        back = parser.OFPFlowMod.parser(datapath, 4, ofproto.OFPT_FLOW_MOD, len(message.buf), 1, bytes(message.buf))
        assert (back.cookie, back.command) == (5, ofproto.OFPFC_ADD)
        assert openflow.installed_identity(back) == openflow.rule_identity(rule), rule
        assert openflow.installed_steps(back.instructions) == openflow.steps(rule.actions), rule
        delete = openflow.flow_delete(datapath, rule.priority, rule.match)
        delete.set_xid(2)
        delete.serialize()
        back = parser.OFPFlowMod.parser(datapath, 4, ofproto.OFPT_FLOW_MOD, len(delete.buf), 2, bytes(delete.buf))
        assert back.command == ofproto.OFPFC_DELETE_STRICT
        assert openflow.installed_identity(back) == openflow.rule_identity(rule), rule
        count += 1
for groups in groups_for(fabric, RoutingPolicy()).values():
    for group in groups:
        message = openflow.group_add(datapath, group)
        message.set_xid(1)
        message.serialize()
        data, offset, buckets = bytes(message.buf), 16, []
        while offset < len(data):
            buckets.append(parser.OFPBucket.parser(data, offset))
            offset += buckets[-1].len
        back = parser.OFPGroupDescStats(ofproto.OFPGT_FF, group.group_id, buckets)
        assert openflow.installed_group(back) == (group.group_id, openflow.group_steps(group)), group
        count += 1
unknown = [parser.OFPInstructionGotoTable(1)]
assert openflow.installed_steps(unknown) is None
pushing = [parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, [parser.OFPActionPushVlan()])]
assert openflow.installed_steps(pushing) is None
print(count)
"""


@pytest.mark.parametrize("framework", ["os-ken", "ryu"])
@pytest.mark.parametrize(
    ("spec", "links"),
    [
        ({"kind": "rail-only", "domains": 3, "rails": 2, "uplinks": 2}, ["d0r0-rail0", "d1r1-nv1"]),
        ({"kind": "rail-optimized", "domains": 3, "rails": 2, "spines": 2, "parallel_links": 2}, ["leaf0-spine1#2"]),
        ({"kind": "spine-leaf", "domains": 66, "rails": 1, "spines": 2}, []),
    ],
)
def test_rules_survive_the_wire(framework: str, spec: dict[str, object], links: list[str]) -> None:
    result = subprocess.run(
        [interpreter(framework), "-c", ROUND_TRIP, json.dumps(spec), *links], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "RAILBED_FRAMEWORK": framework}, timeout=60,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 40
