"""Which index a quorum has, and which appends are answered when."""

from __future__ import annotations

from itertools import product

import pytest

from dledger.protocol.messages.codes import Code
from dledger.raft.state.quorum_ack_checker import QuorumAckChecker, quorum_index, quorum_size
from dledger.raft.state.ready import Finished
from dledger.types import Index, NodeId

MEMBERS = (NodeId("n0"), NodeId("n1"), NodeId("n2"))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_quorum_index_is_the_highest_that_a_majority_has(count):
    """Against the definition, for every small case."""
    for watermarks in product(range(-1, 4), repeat=count):
        index = quorum_index(watermarks)
        assert sum(w >= index for w in watermarks) >= quorum_size(count)
        assert sum(w >= index + 1 for w in watermarks) < quorum_size(count)


def test_watermarks_never_go_back():
    checker = QuorumAckChecker(MEMBERS)
    assert checker.acknowledge(MEMBERS[1], Index(5))
    assert not checker.acknowledge(MEMBERS[1], Index(3))
    assert checker.watermarks[MEMBERS[1]] == 5


def test_finished_appends_are_answered_in_order_as_one_range():
    """An append of which only a part is committed is answered up to its committed entry."""
    checker = QuorumAckChecker(MEMBERS)
    checker.wait(Index(1), Index(4), 40, 100)
    checker.wait(Index(5), Index(9), 50, 100)
    assert checker.complete(Index(6)) == [Finished(Index(1), Index(6), Code.SUCCESS)]
    assert checker.pending_bytes == 50
    assert checker.complete(Index(6)) == []
    assert checker.complete(Index(9)) == [Finished(Index(7), Index(9), Code.SUCCESS)]
    assert checker.pending_bytes == 0


def test_append_without_quorum_is_answered_once_and_stays_pending():
    checker = QuorumAckChecker(MEMBERS)
    checker.wait(Index(1), Index(1), 10, 100)
    checker.wait(Index(2), Index(2), 10, 200)
    assert checker.expire(99) == []
    assert checker.expire(100) == [Finished(Index(1), Index(1), Code.WAIT_QUORUM_ACK_TIMEOUT)]
    assert checker.pending_bytes == 20
    assert checker.complete(Index(2)) == [Finished(Index(2), Index(2), Code.SUCCESS)]
    assert checker.pending_bytes == 0


def test_what_is_left_when_the_term_moves_on_fails_with_expired_term():
    checker = QuorumAckChecker(MEMBERS)
    checker.wait(Index(1), Index(3), 10, 100)
    checker.complete(Index(1))
    assert checker.fail() == [Finished(Index(2), Index(3), Code.EXPIRED_TERM)]
    assert checker.fail() == []
