"""What a client takes for the group's state: the word of a leader, and of nobody else."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dledger.client.protocol.client_state import ClientState, Request
from dledger.client.protocol.operations.requests import METADATA_TRIES, metadata
from dledger.errors import Unavailable
from dledger.protocol.messages.client import MetadataRequest, MetadataResponse
from dledger.protocol.messages.codes import Code
from dledger.types import NodeId


class NoRoutes:
    """Leads nowhere: the test answers itself."""

    def learned(self, answer: MetadataResponse) -> None:
        """Of any node."""


class State:
    """All that this question uses."""

    routes = NoRoutes()


def said(node: str, leader: str) -> tuple[MetadataResponse, bytes]:
    return MetadataResponse(code=Code.SUCCESS, node_id=NodeId(node), leader_id=NodeId(leader)), b""


def ask() -> Any:
    return metadata(cast(ClientState, State()), MetadataRequest(), "which topics there are")


def test_leaders_answer_is_taken_and_no_other_ones() -> None:
    question = ask()
    assert isinstance(next(question), Request)
    question.send(said("n0", "n1"))
    with pytest.raises(StopIteration) as ended:
        question.send(said("n1", "n1"))
    assert ended.value.value.node_id == "n1"


def test_answers_of_nodes_that_do_not_lead_are_an_error_in_the_end() -> None:
    question = ask()
    next(question)
    for _ in range(METADATA_TRIES - 1):
        question.send(said("n0", "n1"))
    with pytest.raises(Unavailable, match=r"which topics there are: no leader .* named n1"):
        question.send(said("n0", "n1"))
