"""Bugs of what committed entries mean, and of how a node applies and serves them."""

from __future__ import annotations

from typing import Final

from dledger.testing.mutants.plant import Mutant

SERVICE: Final = (
    Mutant(
        "catalog-windows-forgotten", "B24", "catalog.snapshot", "_encode_producers",
        "[[key, window.next_sequence] for key, window in windows]",
        "[[key, window.next_sequence] for key, window in windows][:1]",
        "a restart forgets which batches were taken",
    ),
    Mutant(
        "catalog-session-in-no-snapshot", "B24", "catalog.snapshot", "_decode_producers",
        "session.epoch, session.used_at, session.used_ms = epoch, used_at, used_ms",
        "session.epoch, session.used_at, session.used_ms = 0, used_at, used_ms",
        "a restart brings a fenced producer back",
        "tests/catalog/test_catalog_snapshot.py",
    ),
    Mutant(
        "catalog-stage-repeats", "B23 B33", "catalog.clients.transactions", "Transactions.check",
        "if header.sequence == stage.batches:",
        "if header.sequence <= stage.batches:",
        "a staged batch that is sent again is committed twice",
        "tests/catalog/test_catalog_transactions.py",
    ),
    Mutant(
        "catalog-staged-again", "B33", "catalog.clients.transactions", "Transactions.open",
        "writer is not None and command.sequence <= writer.sequence",
        "writer is not None and command.sequence < writer.sequence",
        "a transaction that is committed can be staged again",
        "tests/catalog/test_catalog_transactions.py",
    ),
    Mutant(
        "catalog-incomplete-commit", "B33", "catalog.clients.transactions", "Transactions._refusal",
        "if (stage.batches, stage.records) != (part.batches, part.records):",
        "if stage.batches > part.batches:",
        "a stage of which batches are missing is committed",
        "tests/catalog/test_catalog_transactions.py",
    ),
    Mutant(
        "catalog-staged-is-seen", "B2 B33", "catalog.state_machine", "Catalog.apply_data",
        "                return STAGED\n",
        "                partition.append(index, pos, size, crc, count, "
        "header.last_time_us, index)\n                return STAGED\n",
        "records of a transaction are read before it is committed",
    ),
    Mutant(
        "catalog-search-off-by-one", "B25", "catalog.topics.partition", "Partition._row_of",
        "return self._first_above(BASE, offset, self.begin_row, self.rows) - 1",
        "return min(self._first_above(BASE, offset, self.begin_row, self.rows), self.rows - 1)",
        "a reader gets the batch behind the one it asked for",
    ),
    Mutant(
        "catalog-begin-too-high", "B34", "catalog.topics.partition", "Partition.drop_before",
        "if gone > begin:",
        "gone = min(gone + 1, self.rows)\n        if gone > begin:",
        "a record that is kept is no longer served",
        "tests/catalog/test_catalog_partition.py",
    ),
    Mutant(
        "catalog-expired-is-skipped", "B34", "node.handlers.fetches", "Reads.fetch",
        "if request.start_offset < begin:",
        "if request.start_offset < begin - (1 << 40):",
        "a reader behind retention gets no definite answer",
    ),
    Mutant(
        "server-applies-uncommitted", "D8 B2", "node.loop.applier", "Applier._next",
        "end = Index(min(self._committed + 1, begin + CHUNK_ENTRIES))",
        "end = Index(min(self._raft.end_index + 1, begin + CHUNK_ENTRIES))",
        "readers are shown records that may still go",
    ),
    Mutant(
        "server-commit-before-cut", "D4 B20", "node.loop.ready_loop", "ReadyLoop._commit",
        "if self._cuts:",
        "if self._cuts < 0:",
        "the store takes what is to be cut for what was committed",
        "tests/node/test_server_driver.py",
    ),
    Mutant(
        "server-lazy-by-mistake", "D1 B5", "node.node", "NodeServer._build",
        "lazy=node.flush == \"async\"",
        "lazy=True",
        "acknowledgements do not wait for the disk",
    ),
    Mutant(
        "server-answers-another", "D9 B17", "node.loop.proposals", "ProposalQueue.applied",
        "if waiter.term != entry.term or result is None:",
        "if result is None:",
        "a client is told that its records are written when another leader's entry took their place",
        "tests/node/test_server_appends.py",
    ),
    Mutant(
        "server-open-end-is-definite", "D9 B23", "node.loop.proposals", "ProposalQueue.finished",
        "code = Code.TERM_CHANGED if finished.code is Code.EXPIRED_TERM else finished.code",
        "code = Code.NOT_LEADER",
        "a write that may still be committed is called not written",
    ),
    Mutant(
        "server-wall-clock-timers", "D10 B3", "node.loop.ready_loop", "ReadyLoop.__init__",
        "self._now_ms = environment.now_ms",
        "self._now_ms = environment.wall_ms",
        "a jump of the wall clock moves every time-out",
    ),
    Mutant(
        "server-stale-duplicate", "B23", "node.loop.proposals", "ProposalQueue.caught_up",
        "self._catalog.applied_index >= self._driver.raft.noop_index",
        "self._catalog.applied_index >= -1",
        "a new leader refuses from a state that lacks what was committed",
        "tests/node/test_server_appends.py",
    ),
    Mutant(
        "server-foreign-peer", "B35", "node.handlers.handshake", "",
        "if hello.group != own and (hello.group or hello.node_id):",
        "if hello.group == \"\" and hello.node_id:",
        "nodes and clients of another group are let in",
        "tests/node/test_server_front.py",
    ),
)
