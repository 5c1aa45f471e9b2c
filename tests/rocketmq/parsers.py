"""The parsers of RocketMQ's files, each with what must hold whatever the bytes are: an answer or a
``FormatError``, and what was read is written again as it was."""

from __future__ import annotations

import contextlib

from dledger.rocketmq.columns.commit_log import column_batches
from dledger.rocketmq.columns.entries import entry_batches
from dledger.rocketmq.columns.windows import FileReader, LogSpan
from dledger.rocketmq.format.checkpoint import StoreCheckpoint
from dledger.rocketmq.format.compression import unpack
from dledger.rocketmq.format.config_json import decode_config, encode_config
from dledger.rocketmq.format.consume_queue_unit import (
    decode_batch_units,
    decode_units,
    encode_batch_units,
    encode_units,
    sound_units,
)
from dledger.rocketmq.format.hosts import Host, OffsetId, UniqueId
from dledger.rocketmq.format.index_file import IndexFile
from dledger.rocketmq.format.message import (
    Message,
    decode_message,
    encode_blank,
    encode_dledger_blank,
    encode_message,
)
from dledger.rocketmq.format.producer_batch import BatchItem, decode_batch, encode_batch
from dledger.rocketmq.format.properties import format_properties, parse_properties
from dledger.rocketmq.format.scan import Scanner, scan
from dledger.rocketmq.format.scanned_piece import PieceKind
from tests.rocketmq.made_logs import column, make_log, of_messages

START = 1 << 20
UNSOUND = (PieceKind.DAMAGE, PieceKind.UNUSED)
V6 = Host(b"\1" * 16, 1)
SEEDS = [
    make_log([Message("T", b"body", "TAGS\x01a")], START),
    encode_message(Message("T" * 200, physical_offset=START + 48, version=2, store_host=V6)),
    make_log([Message("T")], START, entries=True),
    encode_batch([BatchItem(b"one", "a\x01b"), BatchItem(b"")]),
    encode_blank(64),
    encode_dledger_blank(64),
    encode_config({"offsetTable": {"T@G": {0: 2}}, "list": [1.5, None, True, "\n"]}),
    IndexFile.empty(3, 4).encode(),
    encode_units([]) + bytes(20),
    b"\xff" * 40,
    bytes(64),
]
"""Sound pieces to begin with."""


def fuzz_message(data: bytes) -> None:
    message = decode_message(data, check=False)
    encoded = encode_message(message)
    assert encoded == data[: len(encoded)]


def fuzz_scan(data: bytes) -> None:
    pieces = list(scan(data, START, file_end=START + len(data) + 8))
    assert sum(p.end - p.start for p in pieces) == len(data)
    for piece in pieces:
        if piece.kind in (PieceKind.MESSAGE, PieceKind.ENTRY):
            place, end = piece.message_offset - START, piece.end - START
            assert encode_message(decode_message(data, place)) == data[place:end]
    found, others = Scanner(data, START).next_sound(START), (*UNSOUND, PieceKind.NOOP)
    assert found == next((p for p in scan(data, START) if p.kind not in others), None)


def fuzz_columns(data: bytes) -> None:
    places = column(column_batches(data, START), "physical_offset")
    assert places == [piece.message_offset for piece in of_messages(scan(data, START))]


def fuzz_windows(data: bytes) -> None:
    """The same through small windows, in two ranges, as a file behind which the log goes on."""
    end, middle = START + len(data), START + len(data) // 2
    span = LogSpan(START, end, end, end)
    for entries, whole in enumerate((column_batches(data, START), entry_batches(data, START))):
        name, how = "position" if entries else "physical_offset", {"entries": entries, "window": 64}
        reader = FileReader(
            lambda at, n: data[at - START : at - START + n], span, columns=(name,), **how
        )
        found = [*reader.batches(START, middle), *reader.batches(middle, end)] if data else []
        assert column(found, name) == column(whole, name)
        assert reader.written_end(START) <= end


def fuzz_batch(data: bytes) -> None:
    assert encode_batch(decode_batch(data)) == data


def fuzz_queue(data: bytes) -> None:
    assert encode_units(decode_units(data)) == data[: len(data) - len(data) % 20]
    assert encode_batch_units(decode_batch_units(data)) == data[: len(data) - len(data) % 46]
    sound_units(data)


def fuzz_index(data: bytes) -> None:
    index = IndexFile(bytearray(data.ljust(40 + 3 * 4 + 4 * 20, b"\0")[:132]), slots=3)
    index.check()
    index.put("T", "k", 1, 2)
    index.units()
    index.lookup("T", "k", 0, 1 << 60)


def fuzz_checkpoint(data: bytes) -> None:
    assert StoreCheckpoint.decode(data).encode()[:40] == data[:40]


def fuzz_config(data: bytes) -> None:
    value = decode_config(data)
    assert decode_config(encode_config(value)) == value


def fuzz_properties(data: bytes) -> None:
    found = parse_properties(data.decode("latin-1"))
    if all("\x01" not in value for value in found.values()):
        with contextlib.suppress(ValueError):
            assert parse_properties(format_properties(found)) == found


def fuzz_ids(data: bytes) -> None:
    text = data.hex().upper()
    assert str(Host.decode(data[:8]))
    assert str(UniqueId.parse(text[:32])) == text[:32]
    assert str(OffsetId.parse(text[:56])) == text[:56]


def fuzz_compression(data: bytes) -> None:
    kind, body = (data[0] % 9 - 1, data[1:]) if data else (0, data)
    assert len(unpack(body, kind, limit=1000)) <= max(1000, len(body))


PARSERS = (
    fuzz_message, fuzz_scan, fuzz_columns, fuzz_windows, fuzz_batch, fuzz_queue, fuzz_index,
    fuzz_checkpoint, fuzz_config, fuzz_properties, fuzz_ids, fuzz_compression,
)  # fmt: skip
