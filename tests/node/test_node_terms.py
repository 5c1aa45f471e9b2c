"""False terms of a sender that is taken for a member: refused, named, and undone on the nodes that
have them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dledger.cli.main import main
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import HardState
from dledger.storage.disk.disk import RealDisk
from dledger.storage.meta.hard_state import STATE_FILE, STATE_MAGIC, StateRecord
from dledger.storage.meta.slots import SlotFile
from dledger.types import Term
from tests.node.bodies import body, heartbeat

WIRE_MAX = (1 << 63) - 1


def poison(directory: Path, term: int = WIRE_MAX) -> None:
    """What an older release saved when such a message came."""
    slots = SlotFile(RealDisk().open(directory / STATE_FILE), STATE_MAGIC)
    assert slots.payload is not None
    record = StateRecord.unpack(slots.payload)
    state = HardState(Term(term), None, record.hard_state.commit_hint)
    slots.write_both(
        StateRecord(record.identity, state, record.segment_bytes, record.index_file_bytes).pack()
    )


async def test_a_false_term_moves_no_node_and_stands_in_log_and_status(
    group: Any, caplog: pytest.LogCaptureFixture
) -> None:
    leader = await group.leader()
    client = await group.client(leader)
    topic = await client.create("t")
    await group.agree()
    terms = {name: node.raft.term for name, node in group.nodes.items()}
    with caplog.at_level(logging.ERROR):
        for name, node in group.nodes.items():
            other = next(one for one in group.nodes if one != name)
            beat = heartbeat(WIRE_MAX, to=name, of=other, group=node.raft.tag)
            for _ in range(100):
                node.parts.ready_loop.step(beat)
    assert {name: node.raft.term for name, node in group.nodes.items()} == terms
    assert len([one for one in caplog.records if "dledger reset-term" in one.getMessage()]) == 3
    status = await client.status()
    [refused] = status["refused_terms"].values()
    assert refused == {"term": WIRE_MAX, "messages": 100}
    assert status["term_is_spent"] is False
    assert (await client.append(body(topic))).code is Code.SUCCESS


async def test_a_group_that_has_spent_its_terms_is_brought_back_by_the_command(
    group: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = await group.client()
    await client.create("t")
    await group.agree()
    folders = [str(group.folder / name) for name in group.config.members]
    running = CliRunner().invoke(main, ["reset-term", folders[0]])
    assert running.exit_code == 2
    assert "a node runs on this store" in running.stderr
    await group.stop()
    for folder in folders:
        poison(Path(folder))
    with caplog.at_level(logging.CRITICAL):
        await group.start()
    spent = await group.client(group.nodes["n0"])
    assert (await spent.status())["term_is_spent"] is True
    assert sum("run 'dledger reset-term'" in one.getMessage() for one in caplog.records) == 3
    await group.stop()
    done = CliRunner().invoke(main, ["reset-term", *folders])
    assert done.exit_code == 0, done.stderr
    assert f"n2 of group test ({group.folder / 'n2'}): term {WIRE_MAX} -> " in done.stdout
    await group.start()
    again = await group.client()
    assert (await again.offsets("t")).code is Code.SUCCESS
    await group.stop()
    refused = CliRunner().invoke(main, ["reset-term", folders[0]])
    assert refused.exit_code == 2
    assert "no term here is astray" in refused.stderr
