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
from tests.rocketmq.made_logs import column, damage_of

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
    kinds = [piece.kind for piece in scan(data, file_end=SEGMENT)]
    assert kinds == [PieceKind.NOOP, PieceKind.ENTRY] * 2
    batches = list(column_batches(data, file_end=SEGMENT, columns=["body"]))
    assert (column(batches, "body"), damage_of(batches)) == ([b"one", b"two"], [])


OTHERS = {
    "batch": log("one", DATA, "two"),
    "short": log("one", COMMAND[:60], "two"),
    "other": log("one", b"DX" + COMMAND[2:], "two"),
    "another CRC": log("one", COMMAND, "two").replace(b"\x93" * 100, b"\x92" + b"\x93" * 99),
}


@pytest.mark.parametrize("data", OTHERS.values(), ids=OTHERS)
def test_what_else_is_no_message_is_damage(data: bytes) -> None:
    kinds = [piece.kind for piece in scan(data, file_end=SEGMENT)]
    assert kinds == [PieceKind.ENTRY, PieceKind.DAMAGE, PieceKind.ENTRY]


def test_as_entries_they_are_rows_like_any_other() -> None:
    data = log("one", COMMAND, "two")
    assert len(column(entry_batches(data, file_end=SEGMENT), "body")) == 3
