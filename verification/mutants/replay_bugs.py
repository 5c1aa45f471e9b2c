"""Bugs of Spark's edge around what is done again: commits, replays, and the places that a
checkpoint keeps."""

from __future__ import annotations

from typing import Final

from verification.mutants.plant import Mutant

REPLAYS: Final = (
    Mutant(
        "replay-without-stages-unheld",
        "P12",
        "datasource.write.sink",
        "Sink._commit",
        "        if not stages and not rows.count:\n",
        "        if not stages:\n",
        "a batch that is made again is held to nothing: its tasks are told that it is committed, "
        "and stage nothing",
        "tests/datasource/test_sink.py",
    ),
    Mutant(
        "digest-of-the-first-task",
        "P12",
        "datasource.write.sink",
        "Sink._commit",
        "rows = sum((one.rows for one in staged), RowsSum())",
        "rows = staged[0].rows",
        "the commit is held to the rows of one task",
        "tests/datasource/test_sink.py",
    ),
    Mutant(
        "every-write-may-be-repeated",
        "P12",
        "datasource.write.exactly_once_key",
        "WriteTransaction.may_be_repeated",
        "return not self.writer_id.startswith(JOB)",
        "return True",
        "a write without a name is taken for one that a repeat does not double, and nobody is "
        "warned",
        "tests/datasource/test_sink.py tests/datasource/test_nameless.py",
    ),
    Mutant(
        "txn-id-outside-the-name",
        "P12",
        "datasource.write.exactly_once_key",
        "of_foreach_batch",
        'f"spark/{query_id}/{topic}/{txn_id}"',
        'f"spark/{query_id}/{topic}/"',
        "two writes of a batch to one topic are one, though each has a name of its own",
        "tests/datasource/test_sink.py",
    ),
    Mutant(
        "kept-places-not-in-the-checkpoint",
        "P12",
        "datasource.options.offsets",
        "StreamOffset.as_json",
        "        if self.unread:\n",
        "        if self.unread and self.init:\n",
        "a topic that comes back after a restart is read from its first record again",
        "tests/datasource/test_spark_offsets.py",
    ),
    Mutant(
        "kept-places-not-read-back",
        "P12",
        "datasource.options.offsets",
        "StreamOffset.from_json",
        '_places(data.get("unread", {}))',
        "_places({})",
        "a topic that comes back after two restarts is read from its first record again",
        "tests/datasource/test_spark_offsets.py",
    ),
    Mutant(
        "places-of-read-partitions-kept",
        "P12",
        "streaming.changes",
        "Changes.with_unread",
        "if p not in read}",
        "if p in read}",
        "the place of a partition that is read is kept, and that of one that is left out is not",
        "tests/streaming/test_stream_topics.py",
    ),
    Mutant(
        "mark-of-nameless-writes",
        "P12",
        "datasource.read.metadata",
        "parse_writer",
        '"nothing" if kind == "txn" else "again"',
        '"nothing"',
        "a write that is doubled when it is made again is shown as one that is not",
        "tests/datasource/test_metadata.py",
    ),
    Mutant(
        "other-rows-by-count-alone",
        "P12",
        "catalog.clients.transactions",
        "_unlike",
        "(writer.records, writer.digest) == (command.records, command.digest)",
        "writer.records == command.records",
        "as many other rows under a committed number are taken for a repeat",
    ),
)
"""The last one by what clients of the simulator see."""
