"""What a call leaves to do is handed on by that call, also when it is one thing alone."""

from __future__ import annotations

from dataclasses import fields

import pytest
from raft_bench import N0, N1, beat, config, log_of, node_with

from dledger.messages.codes import Code
from dledger.messages.entry import HardState
from dledger.messages.membership import Membership
from dledger.raft import IDLE, Finished
from dledger.raft.ready import Fact, Install, Load, Outbox, ReadDone, Ready, RoleChange, TransferDone
from dledger.types import NOWHERE, Index, Role, Term

COLLECTED = {
    "truncate_to": Index(0),
    "append": log_of(0),
    "messages": [beat(1)],
    "committed": Index(0),
    "finished": [Finished(Index(0), Index(0), Code.WAIT_QUORUM_ACK_TIMEOUT)],
    "load": [Load(N1, Index(0), 1)],
    "install": Install(N1, NOWHERE),
    "reads": [ReadDone(1, Code.SUCCESS, Index(0))],
    "transfer": TransferDone(N1, Code.SUCCESS),
    "facts": [Fact("seen")],
}
KNOWN_TO_THE_NODE = {
    "hard_state": HardState(Term(1)),
    "role": RoleChange(Role.LEADER, Term(1), N0),
    "membership": Membership(1),
}


def test_every_kind_of_effect_is_tried_here():
    assert {field.name for field in fields(Ready)} == COLLECTED.keys() | KNOWN_TO_THE_NODE.keys()


@pytest.mark.parametrize("name", COLLECTED)
def test_an_effect_that_comes_alone_is_handed_on_once(name):
    out = Outbox()
    effect = COLLECTED[name]
    setattr(out, name, list(effect) if isinstance(effect, list) else effect)
    found = getattr(out.take(None, None), name)
    assert found == (tuple(effect) if isinstance(effect, list) else effect)
    assert out.take(None, None) is IDLE


@pytest.mark.parametrize("name", KNOWN_TO_THE_NODE)
def test_what_only_the_node_knows_is_handed_on_without_anything_else(name):
    given = {"hard_state": None, "role": None} | {name: KNOWN_TO_THE_NODE[name]}
    assert getattr(Outbox().take(**given), name) == KNOWN_TO_THE_NODE[name]


def test_the_only_member_gives_up_an_append_that_its_disk_does_not_write_in_time():
    """It has nobody to send anything to, so that answer is all that its tick leaves to do."""
    node = node_with(group=config(1, ack_timeout_ms=500))
    node.persisted(node.tick(0).append[-1].position, 0)
    entry = node.propose([b"x"], 0).append[-1]
    finished, at = [], 0
    while at <= 500 + config().heartbeat_ms:
        at = node.deadline_ms()
        finished += [(at, one) for one in node.tick(at).finished]
    [(told, one)] = finished
    assert one == Finished(entry.index, entry.index, Code.WAIT_QUORUM_ACK_TIMEOUT)
    assert 500 <= told <= 500 + config().heartbeat_ms
