"""Bugs around a micro-batch that is run again: what its commit is held to, which name it has, and which places of a
source the checkpoint keeps."""

from __future__ import annotations

from typing import Final

from dledger.testing.mutants.plant import Mutant

_WRITERS: Final = "tests/testing/test_invariants_writers.py"
_SINK: Final = "tests/datasource/test_sink.py"
_TASK: Final = "tests/datasource/test_task.py"
_OFFSETS: Final = "tests/datasource/test_spark_offsets.py"
_TOPICS: Final = "tests/streaming/test_stream_topics.py"

COMMITS: Final = (
    Mutant(
        "replay-sums-staged-tasks-only", "P12", "datasource.sink", "Sink._commit",
        "(one.rows for one in staged)",
        "(one.rows for one in staged if one.stage is not None)",
        "a batch that is made again is not held to its rows, as no task has staged any",
        _SINK,
        planted_blind=True,
    ),
    Mutant(
        "sum-of-the-last-batch", "P12", "datasource.sink", "Sink._summed",
        "staged.rows += sum_rows(batch, columns)",
        "staged.rows = sum_rows(batch, columns)",
        "only the last piece of a task's rows is in count and digest",
        _SINK,
        planted_blind=True,
    ),
    Mutant(
        "kept-replay-leaves-its-stages", "P12", "datasource.sink", "Sink._commit",
        "            self.abort(staged)\n",
        "",
        "what is not written, as the committed rows stand, holds old files of the log back until it times out",
        _SINK,
        planted_blind=True,
    ),
    Mutant(
        "abort-of-one-stage", "P12", "datasource.sink", "Sink.abort",
        "ids = tuple(m.stage.stage_id for m in staged if m.stage is not None)",
        "ids = tuple(m.stage.stage_id for m in staged[:1] if m.stage is not None)",
        "all tasks of a failed write but one leave their stages open",
        _SINK,
        planted_blind=True,
    ),
    Mutant(
        "write-claims-no-name", "P12", "datasource.sink", "Sink.commit",
        "            claim(transaction.claim)\n",
        "            pass\n",
        "a second write of a batch to its topic is taken for a repeat of the first, and its rows are lost",
        _SINK,
        planted_blind=True,
    ),
    Mutant(
        "claim-of-any-write", "P12", "datasource.claims", "check_claim",
        "file.read_text() != claim.job",
        "not file.read_text()",
        "a second write of a batch to its topic is taken for a repeat of the first, and its rows are lost",
        "tests/datasource/test_claims.py",
        planted_blind=True,
    ),
    Mutant(
        "txn-id-forgets-its-former-name", "P12", "datasource.writer", "BatchWriter._transaction",
        ', formerly=f"txn/{self.txn_id}")',
        ")",
        "a job that is run again under its txnId after an upgrade writes again",
        _SINK,
        planted_blind=True,
    ),
    Mutant(
        "warns-of-named-writes", "P12", "datasource.writer", "BatchWriter.commit",
        "not staged[0].transaction.may_be_repeated",
        "staged[0].transaction.may_be_repeated",
        "a write that a replayed micro-batch doubles comes without a warning",
        _SINK,
        planted_blind=True,
    ),
    Mutant(
        "query-by-its-run", "P12", "datasource.sink", "Task.current",
        'context.getLocalProperty("sql.streaming.queryId")',
        'context.getLocalProperty("spark.jobGroup.id")',
        "a query that is started again is another writer, and writes its last batch twice",
        _TASK,
        planted_blind=True,
    ),
    Mutant(
        "every-batch-is-the-first", "P12", "datasource.sink", "Task.current",
        "int(batch or 0)",
        "0",
        "the second micro-batch of a query is refused as a repeat of the first",
        _TASK,
        planted_blind=True,
    ),
    Mutant(
        "replay-error-of-another-cause", "P12", "datasource.replays", "explain",
        'if writer_id.startswith("txn/"):',
        'if not writer_id.startswith("txn/"):',
        "a query's error speaks of a txnId, and that of a txnId of a checkpoint",
        _SINK,
        planted_blind=True,
    ),
    Mutant(
        "repeat-unheld-unsaid", "P12", "datasource.replays", "tell_repeated",
        "    if not done.checked:\n",
        "    if done.checked and not done.records:\n",
        "nobody is told that a repeat could not be held to its rows",
        _SINK,
        planted_blind=True,
    ),
    Mutant(
        "first-offset-asked-anew", "P12", "datasource.offsets", "batch_start",
        "if same and not start.init else {}",
        "if same else {}",
        "the first batch, when it is made again after a crash, starts where the log ends by then",
        _OFFSETS,
        planted_blind=True,
    ),
    Mutant(
        "place-of-a-deleted-topic-kept", "P12", "streaming.changes", "Changes.with_unread",
        "else not self._options.selection.fits(topic)",
        "else True",
        "the checkpoint keeps the place of a topic that was deleted",
        _TOPICS,
        planted_blind=True,
    ),
    Mutant(
        "partition-place-of-a-former-topic", "P12", "streaming.changes", "Changes.with_unread",
        "kept = end.ids[topic] == known.ids[topic] if there",
        "kept = True if there",
        "partitions of a topic that was made anew go on at the places of the one before",
        _TOPICS,
        planted_blind=True,
    ),
    Mutant(
        "left-topic-must-stay", "P12", "streaming.changes", "Changes.same",
        "                if topic in given.ids:\n",
        "                if topic in known.ids:\n",
        "a topic that the options named once cannot be deleted without stopping the query",
        _TOPICS,
        planted_blind=True,
    ),
    Mutant(
        "empty-partition-starts-later", "P12", "streaming.reader", "LogStreamReader._end",
        "and not given.init and not added:",
        "and not given.init:",
        "a topic that comes to a query while it is empty has no place until it has records",
        _TOPICS,
        planted_blind=True,
    ),
    Mutant(
        "group-told-before-the-commit", "P12", "streaming.reader", "LogStreamReader._end",
        "        return self._changes.with_unread(end, given)",
        "        self._progress.publish(end)\n        return self._changes.with_unread(end, given)",
        "a consumer group has processed what the sink has not written yet",
        "tests/streaming/test_stream_progress.py",
        planted_blind=True,
    ),
    Mutant(
        "store-first-offset-asked-anew", "P12", "streaming.store_offsets", "StoreOffset.start_of_batch",
        "known = {} if start.init else start.places",
        "known = start.places",
        "the first batch over files, when it is made again after a crash, starts where they end by then",
        "tests/streaming/test_store_stream.py",
        planted_blind=True,
    ),
    Mutant(
        "traces-not-in-the-snapshot", "P12", "catalog.snapshot", "_decode_writers",
        'meta.get("traces", ())',
        "()",
        "after a restart a query that gave way to others writes its last batch again",
        _WRITERS,
    ),
    Mutant(
        "trace-without-digest", "P12", "catalog.clients.writers", "Writers._forget",
        "Trace(writer.sequence, writer.records, writer.digest)",
        'Trace(writer.sequence, writer.records, "")',
        "a query that gave way to others is held to nothing when it makes its last batch again",
        _WRITERS,
    ),
    Mutant(
        "trace-of-the-batch-before", "P12", "catalog.clients.writers", "Writers.find",
        "return Writer(trace.sequence, -1",
        "return Writer(trace.sequence - 1, -1",
        "a query that gave way to others writes its last batch again",
        _WRITERS,
    ),
    Mutant(
        "rival-with-stages-committed", "P12", "catalog.clients.transactions", "Transactions.commit_write",
        "if writer is None or command.sequence > writer.sequence:",
        "if writer is None or command.sequence > writer.sequence or (command.stages and not writer.digest):",
        "a commit without a digest is made again with the rows of its repeat",
        _WRITERS,
    ),
)
