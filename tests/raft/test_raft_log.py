"""Terms, cuts, durability and the cache of the log's newest entries."""

from __future__ import annotations

import random

import pytest

from dledger.protocol.messages.entry import LogEnd
from dledger.protocol.messages.entry_runs import Entries, pack_sizes, read_entries
from dledger.raft.state.log import LogSummary, RaftLog
from dledger.raft.state.ready import SafetyViolation
from dledger.types import NO_INDEX, NOWHERE, Index, Position, Term
from tests.raft.raft_bench import log_of, summary_of


def in_runs(entries):
    """The same entries as they come from a leader."""
    data = b"".join(bytes(one.header) + bytes(one.body) for one in entries)
    return read_entries(data, pack_sizes(entries))


def filled(*terms, committed=-1, cache_bytes=1 << 20):
    log = RaftLog(LogSummary(), cache_bytes)
    if terms:
        log.append(Entries.of(log_of(*terms)))
        log.persisted(log.end.position)
    log.committed_index = Index(committed)
    return log


def test_terms_are_known_for_all_entries_and_before_the_first_one():
    log = filled(0, 0, 2, 2, 5)
    assert [log.term_at(Index(i)) for i in range(-1, 6)] == [-1, 0, 0, 2, 2, 5, None]
    assert log.first_index_of_term_at(Index(3)) == 2
    assert [log.last_index_at_most(Term(t), Index(4)) for t in (-1, 0, 1, 2, 4, 5)] == [
        -1,
        1,
        1,
        3,
        3,
        4,
    ]
    assert log.holds(Position(Term(2), Index(3)))
    assert not log.holds(Position(Term(5), Index(3)))
    assert log.holds(NOWHERE)


def test_an_entry_that_is_not_in_the_log_has_no_position():
    log = filled(0, 0, 2)
    assert [log.position_at(Index(i)) for i in (-1, 2)] == [NOWHERE, Position(Term(2), Index(2))]
    with pytest.raises(LookupError, match=r"no entry 3 in the log 0\.\.2"):
        log.position_at(Index(3))


def test_a_cut_takes_terms_and_cached_entries_with_it():
    log = filled(0, 0, 2, 2, 5)
    log.truncate(Index(2))
    log.check()
    assert log.end == LogEnd.after(log_of(0, 0, 2)[2])
    assert log.durable_index == 2
    assert log.cached(Index(0), Index(3)) is not None
    log.append(Entries.of(log_of(0, 0, 2, 7)[3:]))
    log.check()
    assert log.term_at(Index(3)) == 7
    assert log.durable_index == 2


def test_slice_after_a_cut_holds_the_replacing_entries():
    """A leader that was deposed, cut, and leads again with a log of the same length."""
    log = filled(0, 0, 2, 2)
    assert [entry.term for entry in log.slice(Index(1), 1 << 20)] == [0, 2, 2]
    log.truncate(Index(1))
    log.append(Entries.of(log_of(0, 0, 5, 5)[2:]))
    assert [entry.term for entry in log.slice(Index(1), 1 << 20)] == [0, 5, 5]


def test_a_cut_to_nothing_leaves_an_empty_log():
    log = filled(0, 0)
    log.truncate(NO_INDEX)
    log.check()
    assert log.end == LogEnd()


def test_nothing_committed_is_cut():
    log = filled(0, 0, 2, 2, committed=2)
    with pytest.raises(SafetyViolation, match="2 is committed"):
        log.truncate(Index(1))
    assert log.end_index == 3
    log.truncate(Index(2))


def test_the_end_behind_an_entry_that_is_not_cached_must_be_told():
    log = RaftLog(summary_of(log_of(0, 0, 2, 2)), 1 << 20)
    log.truncate(Index(1))
    assert not log.end_is_known
    log.truncated(LogEnd.after(log_of(0, 0, 2)[2]))
    assert not log.end_is_known, "that is some other end"
    log.truncated(LogEnd.after(log_of(0, 0)[1]))
    assert log.end == LogEnd.after(log_of(0, 0)[1])


def test_persisted_of_an_entry_that_was_cut_says_nothing():
    log = RaftLog(LogSummary(), 1 << 20)
    log.append(Entries.of(log_of(0, 0, 1)))
    log.truncate(Index(0))
    log.append(Entries.of(log_of(0, 2, 2)[1:]))
    assert not log.persisted(Position(Term(1), Index(2)))
    assert log.durable_index == -1
    assert log.persisted(Position(Term(2), Index(1)))
    assert not log.persisted(Position(Term(0), Index(0))), "nothing new"


def test_a_log_shorter_than_its_commit_mark_is_not_opened():
    with pytest.raises(SafetyViolation, match="5 is known to be committed"):
        RaftLog(summary_of(log_of(0, 0), committed=5), 1 << 20)


def test_the_cache_keeps_the_newest_entries_within_its_bytes():
    log = RaftLog(LogSummary(), 500)
    entries = log_of(*[0] * 100, body=b"12")
    for entry in entries:
        log.append(Entries.of([entry]))
        log.persisted(entry.position)
        log.check()
    assert log.cached(Index(99), Index(100)) == (entries[99],)
    assert log.cached(Index(90), Index(100)) == tuple(entries[90:])
    assert log.cached(Index(80), Index(100)) is None


def test_the_cache_keeps_what_is_not_durable_whatever_its_size():
    """The disk is slow; the store has nothing yet that it could be asked for."""
    log = RaftLog(LogSummary(), 500)
    entries = log_of(*[0] * 100, body=b"12")
    log.append(Entries.of(entries[:60]))
    log.persisted(entries[19].position)
    log.append(Entries.of(entries[60:]))
    assert log.cached(Index(19), Index(100)) is None
    assert log.cached(Index(20), Index(100)) == tuple(entries[20:])
    log.persisted(entries[99].position)
    assert log.cached(Index(90), Index(100)) == tuple(entries[90:])
    assert log.cached(Index(80), Index(100)) is None
    log.check()


def test_entries_that_the_cache_gave_up_go_when_a_cut_leaves_few_others():
    log = RaftLog(LogSummary(), 1000)
    entries = log_of(*[0] * 24, body=b"12")
    for entry in entries:
        log.append(Entries.of([entry]))
        log.persisted(entry.position)
    assert 0 < log._head < log._head * 4 < len(log._cache)
    log.truncate(Index(log.end_index - 12))
    assert not log._head


def test_an_entry_larger_than_the_cache_is_cached_while_it_is_the_newest():
    log = RaftLog(LogSummary(), 10)
    entries = log_of(0, 0, body=b"x" * 100)
    log.append(Entries.of(entries))
    assert log.cached(Index(1), Index(2)) == (entries[1],)


def test_slice_has_one_entry_or_all_that_fit_into_its_bytes():
    """The first entry is in it even where it is larger than the limit."""
    log = filled(*[0] * 10)
    size = log_of(0)[0].size
    assert len(log.slice(Index(0), 3 * size)) == 3
    assert len(log.slice(Index(1), 3 * size - 1)) == 2
    assert len(log.slice(Index(2), 1)) == 1
    assert len(log.slice(Index(3), 1000 * size)) == 7
    assert log.slice(Index(3), 1000 * size) is log.slice(Index(3), 1000 * size), (
        "encoded once for all followers"
    )


def test_retention_leaves_what_is_needed_to_go_on():
    log = filled(0, 0, 2, 2, 5, committed=4)
    log.forget(Index(3))
    log.check()
    assert log.begin_index == 3
    assert [log.term_at(Index(i)) for i in range(1, 5)] == [None, 2, 2, 5], (
        "the one before the first is known"
    )
    assert log.holds(Position(Term(9), Index(0))), "what is gone was committed"
    assert log.cached(Index(2), Index(4)) is None
    assert log.cached(Index(3), Index(5)) is not None


def test_a_log_that_is_all_forgotten_goes_on_where_it_was():
    log = filled(0, 0, committed=1)
    log.forget(Index(2))
    log.check()
    assert log.durable == Position(Term(0), Index(1))
    log.append(Entries.of(log_of(0, 0, 3)[2:]))
    log.check()
    assert log.term_at(Index(2)) == 3


def test_any_mix_of_appends_and_cuts_agrees_with_a_list():
    """A dumb twin: a list of terms."""
    for seed in range(60):
        dice = random.Random(seed)
        log, twin = RaftLog(LogSummary(), dice.choice([60, 300, 5000])), []
        for _ in range(40):
            if twin and dice.random() < 0.4:
                after = dice.randrange(-1, len(twin))
                log.truncate(Index(after))
                del twin[after + 1 :]
                log.truncated(LogEnd.after(log_of(*twin)[-1]) if twin else LogEnd())
            else:
                base = twin[-1] if twin else 0
                new = sorted(dice.randint(base, base + 2) for _ in range(dice.randint(1, 4)))
                twin += new
                appended = log_of(*twin)[-len(new) :]
                log.append(in_runs(appended) if dice.random() < 0.7 else Entries.of(appended))
                if dice.random() < 0.8:
                    log.persisted(log.end.position)
            log.check()
            expected = log_of(*twin)
            assert [log.term_at(Index(i)) for i in range(len(twin))] == twin
            assert log.end == (LogEnd.after(expected[-1]) if twin else LogEnd())
            begin = dice.randrange(len(twin) + 1)
            if dice.random() < 0.3:
                begin = max(0, len(twin) - dice.randint(1, 4))
            end = dice.choice([len(twin), dice.randrange(begin, len(twin) + 1)])
            cached = log.cached(Index(begin), Index(end))
            assert cached in (None, tuple(expected[begin:end]))
            assert log.cached_bodies(range(begin, end)) == [
                None if log.cached(Index(at), Index(at + 1)) is None else expected[at].body
                for at in range(begin, end)
            ]
            most = dice.choice([1, 60, 150, 1 << 20])
            sent = log.slice(Index(begin), most) if begin < len(twin) else None
            if sent is not None:
                assert sent == tuple(expected[begin : begin + len(sent)])
                assert len(sent) == 1 or sent[-1].end_pos - sent[0].pos <= most
                following = expected[begin + len(sent) :]
                assert not following or following[0].end_pos - sent[0].pos > most
