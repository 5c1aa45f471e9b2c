"""Histories: what is recorded, and that files give it back."""

from __future__ import annotations

import io
from itertools import count
from pathlib import Path

import pytest

from dledger.testing.checkers.history import NEVER, Recorder, load, save
from dledger.testing.checkers.values import DAMAGED, decode_value, encode_value, split_id, value_id
from tests.testing.histories_of import APPEND, END, FAILED, READ, TRANSACTION, UNKNOWN, call


def recorder(out: io.StringIO | None = None) -> Recorder:
    return Recorder(count(100).__next__, out)


def test_recorder_history_has_finished_and_open_calls() -> None:
    notes = recorder()
    first = notes.begin(APPEND, "w", "t", 0, values=(1, 2), producer="p", sequence=0)
    notes.begin(APPEND, "w", "t", 0, values=(3,))
    first.ok(start=7)

    done, open_call = notes.history()

    asked = {"producer": "p", "sequence": 0}
    assert done == call(APPEND, "w", 100, 102, values=(1, 2), start=7, **asked)
    assert (open_call.outcome, open_call.returned_ns) == (UNKNOWN, NEVER)


def test_recorder_errors_are_definite_or_not() -> None:
    notes = recorder()
    notes.begin(END, "r", "t", 0).failed()
    notes.begin(END, "r", "t", 0).unknown()
    assert [operation.outcome for operation in notes.history()] == [FAILED, UNKNOWN]


def test_recorder_answer_of_a_read_takes_the_place_of_what_was_asked() -> None:
    notes = recorder()
    notes.begin(READ, "r", "t", 0, start=5).ok(values=(8, 9), to_end=True)
    assert notes.history()[0].values == (8, 9)
    assert notes.history()[0].start == 5


def test_file_of_saved_history_gives_it_back(tmp_path: Path) -> None:
    history = [
        call(APPEND, "w", 1, 5, values=(1, 2), start=0, producer="p", sequence=3),
        call(TRANSACTION, "w", 2, None, partition=1, values=(4,), transaction="q/1", attempt=2),
        call(READ, "r", 6, 7, values=(1,), start=1, offsets=(3,), to_end=True),
        call(END, "r", 8, 9, FAILED, stale=True),
    ]
    save(tmp_path / "h", history)
    assert load(tmp_path / "h") == history


def test_file_of_a_killed_process_has_its_open_calls_and_not_the_cut_line(tmp_path: Path) -> None:
    out = io.StringIO()
    notes = recorder(out)
    first = notes.begin(APPEND, "w", "t", 0, values=(1,))
    notes.begin(APPEND, "w", "t", 0, values=(2,))
    first.ok(start=0)
    text = out.getvalue()
    (tmp_path / "whole").write_text(text)
    (tmp_path / "cut").write_text(text[:-5])

    assert load(tmp_path / "whole") == notes.history()
    assert [operation.outcome for operation in load(tmp_path / "cut")] == [UNKNOWN, UNKNOWN]


def test_files_of_several_processes_become_one_history_in_time(tmp_path: Path) -> None:
    early, late = (call(END, "r", at, at + 1, start=0) for at in (1, 5))
    save(tmp_path / "a", [late])
    save(tmp_path / "b", [early])
    assert load(tmp_path / "a", tmp_path / "b") == [early, late]


def test_file_with_something_else_is_refused_by_line(tmp_path: Path) -> None:
    (tmp_path / "h").write_text(
        '{"n":0,"kind":"end","session":"r","topic":"t","partition":0,"invoked_ns":1}\n[]\n'
    )
    with pytest.raises(ValueError, match="h:2"):
        load(tmp_path / "h")


def test_values_come_back_from_their_bytes() -> None:
    for size in (0, 12, 13, 40, 1000):
        value = value_id(3, size)
        assert decode_value(encode_value(value, size)) == value
        assert split_id(value) == (3, size)


def test_values_with_any_changed_byte_are_damaged() -> None:
    data = encode_value(value_id(1, 2), 40)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        assert decode_value(changed) == DAMAGED
    assert decode_value(b"short") == DAMAGED
