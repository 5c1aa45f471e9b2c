"""Bugs of Spark's edge: how a read is cut, where a batch ends, which write is a repeat."""

from __future__ import annotations

from typing import Final

from dledger.testing.mutants.plant import Mutant

DATASOURCE: Final = (
    Mutant(
        "path-secret-is-the-nodes", "D6", "datasource.log", "find_group",
        'if name != "secret_file"}',
        "if name}",
        "executors on other hosts cannot be told the secret of a path's group",
        "tests/datasource/test_own_node.py",
    ),
    Mutant(
        "claim-later-batch", "P12", "datasource.claims", "check_claim",
        "if batch_id > claim.batch_id:",
        "if batch_id > claim.batch_id + 1:",
        "a write that a later batch has overtaken is taken for a repeat",
        "tests/datasource/test_claims.py",
        planted_blind=True,
    ),
    Mutant(
        "claim-of-another-log", "P12", "datasource.claims", "_key",
        "f\"{claim.group}\\0{claim.name}\"",
        "f\"{claim.name}\"",
        "equal names in two logs are taken for one write",
        "tests/datasource/test_claims.py",
        planted_blind=True,
    ),
    Mutant(
        "claim-forgets-this-batch", "P12", "datasource.claims", "claim",
        "if batch_id < claim.batch_id:",
        "if batch_id <= claim.batch_id:",
        "the note that tells a second write from a repeat is removed at once",
        "tests/datasource/test_claims.py",
        planted_blind=True,
    ),
    Mutant(
        "offsets-recreated-topic", "P12", "datasource.offsets", "batch_start",
        "same = start.ids.get(topic) == end.ids[topic]",
        "same = topic in start.ids",
        "a topic that was created again goes on at the offset of the one before",
        "tests/datasource/test_spark_offsets.py",
        planted_blind=True,
    ),
    Mutant(
        "task-reads-any-group", "P12", "datasource.log", "Address.client",
        "group_id=self.group_id, ",
        "",
        "a task reads the topic that has its topic's number in another group",
        "tests/datasource/test_log.py",
    ),
    Mutant(
        "plan-empty-partition", "P3", "datasource.planning", "ranges",
        "if end > starts[topic][partition]",
        "if end > starts[topic][partition] + 1",
        "a partition with one new record is not read",
        "tests/datasource/test_planning.py",
        planted_blind=True,
    ),
    Mutant(
        "plan-merge-across-partitions", "P3", "datasource.planning", "_merge",
        "same = (nxt.topic, nxt.partition) == (current.topic, current.partition)",
        "same = nxt.topic == current.topic",
        "slices of two partitions become one",
        "tests/datasource/test_planning.py",
        planted_blind=True,
    ),
    Mutant(
        "plan-rows-lost-at-the-cut", "P3", "datasource.planning", "_by_rows",
        "cuts = [one.start + one.rows * i // parts for i in range(parts + 1)]",
        "cuts = [one.start + one.rows // parts * i for i in range(parts + 1)]",
        "the last records of a range are in no task",
        "tests/datasource/test_planning.py",
        planted_blind=True,
    ),
    Mutant(
        "sink-first-batch-only", "P1", "datasource.sink", "Sink.stage",
        "self._send(client, itertools.chain((first,), filled), task, stage)",
        "self._send(client, itertools.chain(filled), task, stage)",
        "the first batch of every task is not written",
        "tests/datasource/test_sink.py",
        planted_blind=True,
    ),
    Mutant(
        "sink-aborts-everything", "P12", "datasource.sink", "Sink.abort",
        "        if not staged:\n"
        "            return  # no stage ids would mean all stages, also those of a run that goes on\n",
        "        if not staged and not messages:\n"
        "            return\n"
        "        staged = staged or [m for m in messages if isinstance(m, Staged)]\n",
        "a failed write without records drops the stages of the run that goes on",
        "tests/datasource/test_sink.py",
        planted_blind=True,
    ),
)

STREAMING: Final = (
    Mutant(
        "left-places-forgotten", "P12", "streaming.changes", "Changes.with_unread",
        "if kept and (rest :=",
        "if not kept and (rest :=",
        "a topic that comes back to the options is read from its first record again",
        "tests/streaming/test_stream_topics.py",
    ),
    Mutant(
        "left-place-of-a-former-topic", "P12", "streaming.changes", "Changes.same",
        "        for topic, log_id in known.ids.items():\n",
        "        for topic, log_id in given.ids.items():\n",
        "a topic that was made anew while it was left out goes on at the offset of the one before",
        "tests/streaming/test_stream_topics.py",
    ),
    Mutant(
        "left-partitions-start-anew", "P12", "streaming.reader", "LogStreamReader._starts",
        "known = given.known()",
        "known = given",
        "a partition that comes back to the options is read from its first record again",
        "tests/streaming/test_stream_topics.py",
    ),
    Mutant(
        "checkpoint-of-another-group", "P12", "streaming.reader", "LogStreamReader.partitions",
        "        self._changes.group(last, self.log.lineage())\n",
        "        self.log.lineage()\n",
        "a planned batch of another group's checkpoint is read from the group that is there",
        "tests/streaming/test_stream_groups.py",
    ),
    Mutant(
        "copy-is-another-group", "P12", "client.results", "Lineage.follows",
        " or group_id in dict(self.ancestors)",
        "",
        "a query does not go on in a copy of its group",
        "tests/streaming/test_stream_groups.py",
    ),
    Mutant(
        "progress-told-when-failed", "P12", "streaming.progress", "Progress.publish",
        "        except DLedgerError as error:\n",
        "        except DLedgerError as error:\n"
        "            self._told |= {(topic, done.ids[topic]): done.logs[topic] for topic in news}\n",
        "a group that could not be told is never told again",
        "tests/streaming/test_stream_progress.py",
        planted_blind=True,
    ),
    Mutant(
        "progress-wrong-log", "P12", "streaming.progress", "Progress._commit",
        "log_ids = {topic: ids[topic] for topic in offsets}",
        "log_ids: dict[str, str] = {}",
        "offsets of a topic that was deleted count for the one that was made in its place",
        "tests/streaming/test_stream_progress.py",
        planted_blind=True,
    ),
    Mutant(
        "progress-stops-at-a-new-topic", "P12", "streaming.progress", "Progress._tell",
        "if there.get(topic) == ids[topic]",
        "if topic in there",
        "a group is told of no topic any more while one of them is another by now",
        "tests/streaming/test_stream_progress.py",
    ),
    Mutant(
        "admit-one-more-row", "P12", "streaming.admission", "shares",
        "for i in by_remainder[: limit - sum(whole)]:",
        "for i in by_remainder[: limit - sum(whole) + 1]:",
        "a micro-batch has one row more than its limit",
        "tests/streaming/test_admission.py",
        planted_blind=True,
    ),
    Mutant(
        "admit-bytes-over", "P12", "streaming.admission", "_limit_bytes",
        "if used + piece.bytes > limit:",
        "if used > limit:",
        "a micro-batch is larger than its limit of bytes",
        "tests/streaming/test_admission.py",
        planted_blind=True,
    ),
    Mutant(
        "pace-holds-for-ever", "P11", "streaming.admission", "Pace.go",
        "< limits.delay_ms",
        "<= limits.delay_ms or few",
        "a batch with few rows is held back for ever",
        "tests/streaming/test_admission.py tests/streaming/test_stream_pace.py",
        planted_blind=True,
    ),
)
