"""Bugs of a group that keeps a RocketMQ commit log, and of a broker's files."""

from __future__ import annotations

from typing import Final

from dledger.testing.mutants.plant import Mutant

BROKER: Final = (
    Mutant(
        "gets-show-what-was-replaced", "D8 B2", "server.gets", "Gets._message_at",
        "applied = self._catalog.applied_index",
        "applied = self._driver.raft.committed_index",
        "a message that was never committed is shown while its cut waits for the disk",
        "tests/server/test_server_gets.py",
    ),
    Mutant(
        "gets-show-an-old-tail", "D8 B2", "server.gets", "Gets._ask",
        "if self._needs > min(raft.committed_index, raft.durable_index):",
        "if self._needs > raft.end_index + (1 << 40):",
        "beside a catalog that was taken over, what the log still has is taken for what is applied",
        "tests/server/test_server_gets.py",
    ),
    Mutant(
        "gets-lead-past-the-first", "B25", "server.gets", "Gets._get",
        "return self._get_nothing(request, asked.next_offset, lags=lags)",
        "end = self._catalog.queues.next.get((request.topic, request.queue_id), 0)\n"
        "            return self._get_nothing(request, end, lags=lags)",
        "a consumer of an empty queue is sent behind its first message",
        "tests/server/test_server_gets.py",
    ),
    Mutant(
        "gets-lag-is-retention", "B25 B34", "server.gets", "Gets._get_nothing",
        "if end and lags:",
        "if end < 0 and lags:",
        "messages that a node has not put into its queues yet are called gone",
        "tests/server/test_server_gets.py",
    ),
    Mutant(
        "gets-unapplied-is-gone", "B25 B34", "server.gets", "Gets._message_at",
        "(is_known and pos >= store.begin.end_pos)",
        "(is_known and pos >= store.end.end_pos)",
        "a consumer is sent past a message that is in its queue and not applied yet",
        "tests/server/test_server_gets.py",
    ),
    Mutant(
        "store-place-beside-a-cut", "B7", "store.reader", "Reader.index_at",
        "if (now.cuts, now.begin_index) == (view.cuts, view.begin_index):",
        "if now.cuts >= view.cuts:",
        "a look for an entry beside a cut or retention is reported as damage",
        "tests/store/test_store_parts.py",
    ),
)
