"""Memory of large payloads: used again, and never while anything refers to what lies in it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.net.connections import payload_memory
from dledger.net.connections.payload_memory import PayloadMemory
from dledger.protocol.messages.client import AppendRequest
from dledger.protocol.messages.entry import MAGIC_NORMAL, LogEnd
from dledger.protocol.messages.entry_runs import (
    bodies_are_sound,
    pack_sizes,
    pieces_of,
    read_entries,
    stamp_all,
)
from dledger.protocol.wire import Frame, FrameLimits, FrameReader, encode
from dledger.types import Term

SIZE = 100_000
MIB = 1 << 20


def filled(memory: PayloadMemory, size: int, byte: int) -> memoryview:
    payload = memory.take(size)
    assert len(payload) == size
    payload[:] = bytes([byte]) * size
    return payload


VIEWS: dict[str, Callable[[memoryview], Any]] = {
    "itself": lambda view: view,
    "read-only": lambda view: view.toreadonly(),
    "its last byte": lambda view: view[-1:],
    "a part of a part": lambda view: view[10:][20:30].toreadonly(),
    "numbers": lambda view: view[:80].cast("Q"),
    "an Arrow buffer": lambda view: pa.py_buffer(view),
    "a part of an Arrow buffer": lambda view: pa.py_buffer(view).slice(7, 9),
}


def test_without_objects_to_lend_by_each_payload_has_memory_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(payload_memory, "CAN_LEND", False)
    memory = PayloadMemory()
    first, other = filled(memory, SIZE, 7), filled(memory, SIZE, 8)
    assert bytes(first) == bytes([7]) * SIZE
    del first, other
    assert memory.kept == 0


@pytest.mark.parametrize("made", VIEWS.values(), ids=list(VIEWS))
def test_memory_comes_back_with_the_last_view_of_it_and_not_before(
    made: Callable[[memoryview], Any],
) -> None:
    memory = PayloadMemory()
    held: Any = made(filled(memory, SIZE, 7))
    assert memory.kept == 0
    before, other = bytes(held), filled(memory, SIZE, 8)
    assert bytes(held) == before
    del held
    assert memory.kept >= SIZE
    again = filled(memory, SIZE, 9)
    assert memory.kept == 0, "it is used again"
    assert bytes(other) == bytes([8]) * SIZE
    assert bytes(again) == bytes([9]) * SIZE


sizes = st.sampled_from([64 << 10, SIZE, SIZE + 1, 200_000, MIB, MIB + 400]) | st.integers(1, MIB)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(sizes, st.integers(0, 5), st.integers(0, 200_000)), max_size=25))
def test_a_payload_that_is_held_never_changes(taken: list[tuple[int, int, int]]) -> None:
    """Whatever is received after it, in however many sizes."""
    memory, held = PayloadMemory(2 * MIB), dict[int, tuple[memoryview, int]]()
    for number, (size, slot, begin) in enumerate(taken):
        part = filled(memory, size, number)[begin % size :]
        if slot:  # takes the place of one that was held
            held[slot] = part, number
        for view, byte in held.values():
            assert view == bytes([byte]) * len(view)
        del part
        assert memory.kept <= 2 * MIB


def frame_of(payload: bytes, memory: PayloadMemory) -> Frame:
    """A frame as a connection receives it."""
    data = b"".join(encode(AppendRequest(), 1, [payload]))
    reader = FrameReader(FrameLimits(), memory=memory.take)
    assert reader.feed(data[:1000]) == []
    (frame,) = reader.feed(data[1000:])
    return frame


def test_entries_of_a_payload_stay_as_they_are_while_others_are_received() -> None:
    """As a log's cache has them, when nothing else refers to the message that brought them."""
    memory = PayloadMemory()
    entries = stamp_all(LogEnd(), Term(1), MAGIC_NORMAL, [b"a" * SIZE, b"b" * SIZE], 1 << 30)
    payload = b"".join(pieces_of(entries))
    cached = read_entries(frame_of(payload, memory).payload, pack_sizes(entries))
    last = cached[1:]
    del cached
    for _ in range(3):
        frame_of(b"z" * len(payload), memory)
    assert bodies_are_sound(last)
    assert last == entries[1:]
    del last
    assert memory.kept >= 2 * len(payload)


def test_garbage_that_looks_at_its_payload_once_more_finds_it_unchanged() -> None:
    """The collector ends loans before it calls any `__del__`."""
    memory, seen = PayloadMemory(), list[bytes]()

    class Late:
        def __init__(self, payload: memoryview) -> None:
            self.payload, self.itself = payload, self

        def __del__(self) -> None:
            filled(memory, SIZE, 9)
            seen.append(bytes(self.payload))

    Late(filled(memory, SIZE, 7))
    gc.collect()
    assert seen == [bytes([7]) * SIZE]


def test_a_frame_that_is_given_up_gives_its_memory_back() -> None:
    memory = PayloadMemory()
    reader = FrameReader(FrameLimits(), memory=memory.take)
    reader.feed(b"".join(encode(AppendRequest(), 1, [bytes(SIZE)]))[:5000])
    wanted = reader.wanted
    reader.forget()
    assert memory.kept == 0, "the system may yet write there"
    del wanted
    assert memory.kept >= SIZE


def test_only_a_little_memory_is_kept_and_the_oldest_goes_first() -> None:
    memory = PayloadMemory(4 * MIB)
    payloads = [memory.take(MIB) for _ in range(20)]
    payloads.clear()
    assert 3 * MIB <= memory.kept <= 4 * MIB
    memory.take(64 * MIB)
    assert memory.kept >= 3 * MIB, "a very large one is not kept, and takes the place of none"
    for _ in range(5):
        memory.take(2 * MIB)
    assert memory.kept == 4 * MIB, "what was kept for payloads of another size goes"


@pytest.mark.parametrize("advice", [payload_memory.HUGE_PAGES, None, 1 << 20])
def test_memory_in_huge_pages_is_used_again(
    advice: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that of a system without them, or of one that does not know the advice."""
    monkeypatch.setattr(payload_memory, "HUGE_PAGES", advice)
    memory = PayloadMemory()
    first = filled(memory, 5 * MIB + 1, 7)
    held = first[-1:]
    del first
    other = filled(memory, 6 * MIB, 8)
    assert bytes(held) == bytes([7])
    del other
    assert memory.kept == 6 * MIB
    again = filled(memory, 4 * MIB + 1, 9)
    assert memory.kept == 0, "payloads of like sizes follow one another"
    assert again == bytes([9]) * len(again)


def test_payloads_end_in_any_thread() -> None:
    memory = PayloadMemory()
    ended: list[memoryview] = []

    def work(byte: int) -> None:
        for _ in range(300):
            payload = filled(memory, SIZE, byte)
            ended.append(payload)
            ended.pop(0)
            assert payload == bytes([byte]) * SIZE

    threads = [threading.Thread(target=work, args=(byte,)) for byte in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended.clear()
    assert SIZE <= memory.kept <= 16 * SIZE, "each thread has three at most at a time"
