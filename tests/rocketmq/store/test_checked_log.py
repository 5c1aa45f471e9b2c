"""A slave's log that looks at many messages at once takes and refuses what it does when it looks at
each by itself."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dledger.errors import FormatError
from dledger.rocketmq.dispatch import chunk as message_chunk
from dledger.rocketmq.format.message import Message, message_size
from dledger.rocketmq.ha.checked_log import CheckedLog
from dledger.rocketmq.store.commit_log import CommitLog
from tests.rocketmq.made_logs import FILE, log_of, some_messages
from verification.sim.rng import Rng

COUNT = 300
UNITS = 50


def damage(dice: Rng, log: bytearray, begin: int) -> str:
    """Do something to a message; which part of it."""
    part, at, width = dice.pick(
        (
            ("nothing", 0, 0),
            ("size", 0, 4),
            ("magic", 4, 4),
            ("CRC", 8, 4),
            ("queue id", 12, 4),
            ("queue offset", 20, 8),
            ("place", 28, 8),
            ("flag", 36, 4),
            ("anything", 0, 120),
            ("zeros", 0, 0),
        )
    )
    if part == "zeros":
        log[begin : begin + 8] = bytes(8)
    elif width:
        log[begin + at + dice.below(width)] ^= 1 << dice.below(8)
    return part


def taken(root: Path, log: bytes, cuts: list[int]) -> tuple[str, int, int, bytes]:
    """Feed a log in pieces: what was said against it, where it ends, how far it may be reported,
    and what is stored."""
    commit_log = CommitLog(root, FILE)
    checked, at, said = CheckedLog(commit_log, {}, units_in_file=UNITS), 0, ""
    for end in [*cuts, len(log)]:
        if end > at:
            try:
                at = checked.append_raw(at, log[at:end])
            except FormatError as error:
                said = str(error).replace(str(root), "")
                break
    stored = bytes(commit_log.read(0, checked.max_offset))
    found = said, checked.max_offset, checked.sound_offset, stored
    commit_log.files.close()
    return found


def both(root: Path, log: bytes, cuts: list[int]) -> tuple[str, int, int, bytes]:
    """The same with columns and without them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message_chunk, "FEW", 1)
        with_columns = taken(root / "with columns", log, cuts)
        patch.setattr(message_chunk, "FEW", sys.maxsize)
        assert taken(root / "without them", log, cuts) == with_columns
    return with_columns


def test_many_messages_at_once_are_taken_and_refused_as_one_by_one(tmp_path: Path) -> None:
    refused: Counter[str] = Counter()
    for seed in range(80):
        dice = Rng(seed)
        messages = some_messages(dice, COUNT, odd=seed % 3 == 1)
        log = bytearray(log_of(messages))
        begins = [0]
        for message in messages[:-1]:
            begins.append(begins[-1] + message_size(message))
        begin = dice.pick(begins)
        part = damage(dice, log, begin)
        cuts = [dice.below(50_000) for _ in range(dice.below(6))]
        cuts = sorted([*cuts, *(begin + dice.below(150) for _ in range(dice.below(3)))])
        said, end, sound, stored = both(tmp_path / str(seed), bytes(log), cuts)
        refused[part] += bool(said)
        assert sound == end == len(stored)
        assert stored == log[:end]
        assert (end == FILE) is not said
    assert not refused["nothing"]
    parts = ("size", "magic", "CRC", "queue id", "queue offset", "place", "anything", "zeros")
    assert all(refused[part] for part in parts)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (Message("../x", b""), "name of a folder"),
        (Message("orders", b"", queue_id=-1), "a message of queue -1"),
        (Message("orders", b"", queue_id=1, queue_offset=UNITS + 1), "queue 1 of orders ends at"),
        (Message("orders", b"", queue_id=3, queue_offset=-1), "queue offset -1"),
    ],
)
def test_a_message_that_no_queue_can_have_is_refused_among_many(
    tmp_path: Path, wrong: Message, says: str
) -> None:
    sound = [Message("orders", b"", queue_id=n % 2, queue_offset=n // 2) for n in range(40)]
    begin = sum(map(message_size, sound))
    more = [Message("others", b"", queue_offset=n) for n in range(40)]
    offset = wrong.queue_offset + (20 if wrong.queue_id == 1 else 0)
    log = log_of([*sound, replace(wrong, queue_offset=offset), *more])
    said, end, _, _ = both(tmp_path, log, [])
    assert says in said
    assert end == begin


@pytest.mark.parametrize("text", [b"\xff", b"\xc3\x28"])
def test_properties_that_are_no_text_are_refused_among_many(tmp_path: Path, text: bytes) -> None:
    sound = [Message("orders", b"", "KEYS\x01kk", queue_offset=n) for n in range(90)]
    log = bytearray(log_of(sound))
    size = message_size(sound[0])
    log[41 * size - len(text) : 41 * size] = text
    said, end, _, _ = both(tmp_path, bytes(log), [])
    assert "UTF-8" in said
    assert end == 40 * size


@pytest.mark.parametrize("cut", [-97, 0, 1, 7, 8])
def test_zeros_are_refused_wherever_the_bytes_before_them_end(tmp_path: Path, cut: int) -> None:
    sound = [Message("orders", b"", queue_offset=n) for n in range(90)]
    log = bytearray(log_of(sound))
    begin = 40 * message_size(sound[0])
    log[begin:] = bytes(len(log) - begin)
    said, end, _, _ = both(tmp_path, bytes(log), [begin + cut])
    assert f"byte {begin:,}: " in said
    assert end == begin
