"""Entries of a dledger group that are no messages: commands are passed, anything else is damage."""

from __future__ import annotations

import pytest

from dledger.protocol.messages.entry import HEADER_SIZE, MAGIC_NOOP, MAGIC_NORMAL, LogEnd, stamp
from dledger.records.body.header import BodyHeader, encode_header
from dledger.records.body.header import BodyKind as BodyKind
from dledger.rocketmq.columns.commit_log import column_batches
from dledger.rocketmq.columns.entries import entry_batches
from dledger.rocketmq.format.message import Message, encode_message
from dledger.rocketmq.format.scan import scan
from dledger.rocketmq.format.scanned_piece import PieceKind
from dledger.types import Term

SEGMENT = 1 << 16


def log(*bodies: bytes | str) -> bytes:
    """Entries with these bodies; a text is a message's, nothing is a NOOP's."""
    data, end = b"", LogEnd()
    for body in bodies:
        if isinstance(body, str):
            body = encode_message(
                Message("orders", body.encode(), physical_offset=end.end_pos + HEADER_SIZE)
            )
        entry = stamp(end, Term(1), MAGIC_NORMAL if body else MAGIC_NOOP, body, SEGMENT)
        data, end = data + entry.header + bytes(entry.body), LogEnd.after(entry)
    return data


COMMAND = encode_header(BodyHeader(BodyKind.COMMAND)) + b"\x93" * 100
DATA = encode_header(BodyHeader(BodyKind.DATA, 1, 0, 1)) + b"\x93" * 100


def test_a_groups_own_commands_are_passed_between_messages() -> None:
    data = log(b"", "one", COMMAND, "two")
    assert [piece.kind for piece in scan(data, file_end=SEGMENT)] == [
        PieceKind.NOOP,
        PieceKind.ENTRY,
        PieceKind.NOOP,
        PieceKind.ENTRY,
    ]
    batches = list(column_batches(data, file_end=SEGMENT, columns=["body"]))
    assert not any(batch.damage for batch in batches)
    assert [
        body for batch in batches if batch.rows for body in batch.rows.column(0).to_pylist()
    ] == [b"one", b"two"]


@pytest.mark.parametrize(
    "body", [DATA, COMMAND[:60], b"DX" + COMMAND[2:]], ids=["batch", "short", "other"]
)
def test_what_else_is_no_message_is_damage(body: bytes) -> None:
    kinds = [piece.kind for piece in scan(log("one", body, "two"), file_end=SEGMENT)]
    assert kinds == [PieceKind.ENTRY, PieceKind.DAMAGE, PieceKind.ENTRY]


def test_a_command_that_does_not_match_its_crc_is_damage() -> None:
    data = bytearray(log("one", COMMAND, "two"))
    data[data.index(b"\x93" * 100) + 5] ^= 1
    assert [piece.kind for piece in scan(bytes(data), file_end=SEGMENT)] == [
        PieceKind.ENTRY,
        PieceKind.DAMAGE,
        PieceKind.ENTRY,
    ]


def test_as_entries_they_are_rows_like_any_other() -> None:
    data = log("one", COMMAND, "two")
    rows = [batch.rows.num_rows for batch in entry_batches(data, file_end=SEGMENT) if batch.rows]
    assert sum(rows) == 3
