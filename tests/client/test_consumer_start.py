"""Where a consumer begins when its share changes while it asks for the group's offsets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dledger.client.aio.consuming.engine import ConsumerEngine
from dledger.client.aio.transport import AsyncTransport
from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.consuming.settings import ConsumerSettings
from dledger.client.protocol.operations.group_membership import MemberId
from dledger.errors import ProtocolError
from dledger.net.connections import incoming
from dledger.protocol.messages.catalog_commands import JoinGroup, LeaveGroup
from dledger.protocol.messages.client import TopicInfo
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.group_heartbeat import GroupHeartbeatResponse
from dledger.protocol.wire.codec import decode
from dledger.testing import InProcessGroup
from dledger.types import Buffer

KEY = 1 << 32
TOPIC = TopicInfo(name="t", topic_id=1, log_id="a", partitions=1)


def given(since: int) -> GroupHeartbeatResponse:
    """The answer to a member that has the partition since that epoch."""
    return GroupHeartbeatResponse(
        code=Code.SUCCESS, epoch=since, changed_at=since, assigned={KEY: since}, topics=(TOPIC,)
    )


def test_offset_of_a_share_that_went_and_came_back_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another member had it meanwhile, and has committed more."""

    async def run() -> None:
        core = ClientState.make("127.0.0.1:1", "", {})
        settings = ConsumerSettings(group="g", topics=("t",))
        engine = ConsumerEngine(core, AsyncTransport(core), settings=settings)
        engine.state.joined(MemberId("g", "m"))
        engine.state.heard(given(5), 1e12)

        async def starts(keys: list[int]) -> dict[int, int]:
            offset = 3 if engine.state.epoch == 5 else 8
            engine.state.heard(given(7), 1e12)
            return dict.fromkeys(keys, offset)

        monkeypatch.setattr(engine, "_starts", starts)
        assert await engine._change() is None
        assert engine.state.held == {}
        assert await engine._change() is not None
        held = engine.state.held[KEY]
        assert (held.since, held.position) == (7, 8)

    asyncio.run(run())


def test_nodes_that_know_no_consumers_are_told_from_silent_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They end the connection of who sends a command that they do not know."""

    def of_before(kind: int, header: Buffer, payload: Buffer = b"") -> Any:
        message = decode(kind, header, payload)
        if isinstance(getattr(message, "command", None), JoinGroup | LeaveGroup):
            raise ProtocolError("18 is no command's number")
        return message

    monkeypatch.setattr(incoming, "decode", of_before)
    with InProcessGroup(1) as nodes, nodes.client() as client:
        client.create_topic("t")
        with pytest.raises(ProtocolError, match=r"join group 'g'.*: upgrade the nodes"):
            client.consumer("g", ["t"])


def test_a_pattern_fits_whole_names_but_not_the_audit_logs() -> None:
    settings = ConsumerSettings(group="g", pattern=".*a.*")
    assert settings.matching(["a", "b", "bad", "__audit"]) == ("a", "bad")
    assert ConsumerSettings(group="g", topics=("__audit",)).matching([]) == ("__audit",)
