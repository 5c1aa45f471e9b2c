"""Bugs planted from the production code and its documents alone, before any test was seen. No test
found six of the 24 then."""

from __future__ import annotations

from typing import Final

from verification.mutants.plant import Mutant

BLIND: Final = (
    Mutant(
        "blind-handover-before-commit",
        "P11",
        "raft.roles.leader",
        "Leader._tell_transferee",
        "if self.dispatchers[transfer.to].watermark == log.end_index == log.committed_index:",
        "if self.dispatchers[transfer.to].watermark == log.end_index:",
        "a planned handover begins while appends are not committed, so their clients are told "
        "OutcomeUnknown",
        "tests/raft/test_raft_transfer.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-window-leaks",
        "P11",
        "raft.roles.entry_dispatcher",
        "EntryDispatcher._resume",
        "            self._in_flight.clear()\n            self._in_flight_bytes = 0",
        "            self._in_flight.clear()",
        "bytes of lost pushes stay counted: when they add up to the window, that follower is sent "
        "nothing any more",
        "tests/raft/test_paper.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-stale-slice",
        "B20",
        "raft.state.log",
        "RaftLog.truncate",
        "        self.generation += 1\n        self._last_slice = None",
        "        self.generation += 1",
        "a leader that was cut and leads again may push what was cut: followers get another log "
        "than its own",
        "tests/raft/test_raft_log.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-table-rows-unsynced",
        "D1 B10",
        "storage.meta.tables",
        "FileTable.sync",
        "            self.write()\n"
        "            file, dirty, self._dirty = self._rows, self._dirty, False",
        "            file, dirty, self._dirty = self._rows, self._dirty, False\n"
        "            self.write()",
        "a checkpoint writes the rows that waited in memory and does not sync them: a power cut "
        "makes it useless",
        "tests/storage/test_store_install.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-held-last-entry",
        "P8",
        "storage.retention",
        "hold_back",
        "if file.next_index > held.first), len(files))",
        "if file.next_index - 1 > held.first), len(files))",
        "retention deletes a file whose last entry is the first one that a consumer group has not "
        "processed",
        "tests/storage/test_retention.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-mark-keeps-indexed",
        "D15 B20",
        "storage.recovery.recovery_point",
        "RecoveryPoints.lower_to",
        "mark = self._change(replace(self.mark, durable=durable, indexed=indexed))",
        "mark = self._change(replace(self.mark, durable=durable))",
        "the mark still names an entry that was cut: the recovery after a crash calls sound "
        "entries damaged",
        "tests/storage/test_store_crash.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-front-drop-forgets-waiting",
        "P1",
        "storage.meta.tables",
        "FileTable.drop_front",
        "                    self.write()\n"
        "                    self._replace(self.begin, self._written)",
        "                    self._replace(self.begin, self._written)",
        "a retention that rewrites a table drops the rows that wait in memory: the newest batches "
        "cannot be found",
        "tests/storage/test_tables.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-window-one-too-many",
        "B24",
        "catalog.clients.producers",
        "ResultWindow.remember",
        "if self.next_sequence < WINDOW:",
        "if self.next_sequence <= WINDOW:",
        "a retry of batch 2048 is told the offset of batch 0, and snapshots give other producers "
        "wrong offsets",
        "tests/catalog/test_catalog_producers.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-front-takes-first-kept",
        "P8",
        "catalog.topics.partition",
        "Partition.drop_before",
        "if fields[1] < index]",
        "if fields[1] <= index]",
        "in a partition with transactions the first batch that retention has kept is not served "
        "any more",
        "tests/catalog/test_catalog_partition.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-hold-of-first-partition",
        "P8",
        "catalog.clients.consumer_groups",
        "Groups.holds",
        "found.append(min(needed))",
        "found.append(needed[0])",
        "retention deletes what a holding group has not read in any partition but the first one "
        "that it committed",
        "tests/catalog/test_catalog_groups.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-superseded-cut-uncounted",
        "B20",
        "node.loop.log_writer",
        "LogWriter._supersede",
        "            self._cuts_done += sum(isinstance(job, Truncate) for job in self._waiting)\n",
        "",
        "after a cut behind a damaged entry was superseded, that member never acknowledges "
        "anything again",
        "tests/node/test_node_disk.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-retention-forgets-older-checkpoint",
        "B22",
        "node.maintenance.retention",
        "Retention.retain",
        "self._context.checkpoints.oldest_index,",
        "self._context.checkpoints.index,",
        "retention deletes entries that the older checkpoint needs: one damaged snapshot then "
        "loses the catalog",
        "tests/node/test_node_older_checkpoint.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-enforce-shuts-out-member",
        "P11",
        "node.peers.handshake",
        "Gate.shut_out",
        "if member in reached and (member not in proved or member in self.unproved)",
        "if member in reached and (member not in proved and member in self.unproved)",
        "the group enforces its secret although a member has not proved it, and that member is "
        "shut out for ever",
        "tests/node/test_node_secret.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-image-forgotten-while-fetched",
        "B22 P11",
        "node.snapshot.sender",
        "SnapshotSender._give",
        "        given.used_ms = self._now_ms()\n        size =",
        "        size =",
        "an image goes ten seconds after its begin although it is being fetched: a slow member "
        "never gets a state",
        "tests/node/test_node_install.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-doubt-forgotten",
        "B23",
        "client.protocol.in_flight_window",
        "InFlightWindow.answered",
        "item.maybe = item.maybe or found is AnswerOutcome.UNCLEAR",
        "item.maybe = found is AnswerOutcome.UNCLEAR",
        "a batch that may have been written is numbered anew in the next session and doubled, or "
        "told as not written",
        "tests/client/test_producer.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-first-error-wins",
        "B23",
        "client.protocol.batching",
        "Pending.answered",
        "if self.error is None or self.error.definite:",
        "if self.error is None:",
        "a large append is told as not written although a part of it may be: a caller that "
        "repeats it doubles records",
        "tests/client/test_grouping.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-group-readable-secret",
        "B35",
        "net.secret",
        "_refuse_strange_file",
        "if status.st_mode & 0o077:",
        "if status.st_mode & 0o007:",
        "a secret that all users of the file's group can read or change is taken for a secret",
        "tests/net/test_secret.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-waiting-client-is-idle",
        "B35",
        "net.connections.connection",
        "Connection.look_idle",
        "if self._asked != self._seen_asked or self._asked > self._answered or self.unsent_bytes:",
        "if self._asked != self._seen_asked or self.unsent_bytes:",
        "a client that waits for an answer is closed to make room for another one, or as one that "
        "asks nothing",
        "tests/net/test_connection.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-slave-reports-too-early",
        "D1",
        "rocketmq.ha.follower",
        "BrokerFollower._flush",
        "        end = self._log.sound_offset\n"
        "        await asyncio.get_running_loop().run_in_executor(self._disk, self._flush_log)\n"
        "        return end",
        "        await asyncio.get_running_loop().run_in_executor(self._disk, self._flush_log)\n"
        "        return self._log.sound_offset",
        "a slave acknowledges bytes that came during its flush: what a sync master answered with "
        "SEND_OK can be lost",
        "tests/rocketmq/store/test_broker_ha.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-queue-offsets-of-an-earlier-term",
        "P2",
        "node.rocketmq.puts",
        "Puts._settle",
        "if self._settled is None or self._settled_term != term:",
        "if self._settled is None:",
        "a node that leads for the second time gives queue offsets that another leader has given "
        "to other messages",
        "tests/node/test_node_puts.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-last-indexed-twice",
        "P7",
        "rocketmq.files.lookup",
        "_in_order",
        "            if (at := places.pop()) != place:\n                yield Found(rows[at])\n",
        "            yield Found(rows[places.pop()])\n",
        "the last message that the index knows is found twice, by the index and by the scan "
        "behind it",
        "tests/cli/test_cli_rocketmq.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-recreated-topic-from-old-offset",
        "P12",
        "datasource.options.offsets",
        "batch_start",
        "known = start.logs.get(topic, {}) if same and not start.init else {}",
        "known = start.logs.get(topic, {}) if not start.init else {}",
        "with onTopicRecreate=restart the first records of the new topic are skipped, as many as "
        "the old one had read",
        "tests/datasource/test_spark_offsets.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-byte-limit-jumps",
        "P12",
        "streaming.admission",
        "_limit_bytes",
        "            if used + piece.bytes > limit:\n                break",
        "            if used + piece.bytes > limit:\n                continue",
        "a small stored batch behind one that is too large is admitted, and with it the large "
        "one: over the byte limit",
        "tests/streaming/test_admission.py",
        planted_blind=True,
    ),
    Mutant(
        "blind-decoded-limit-per-buffer",
        "B35",
        "records.body.unpacked_size",
        "check_sizes",
        "total += length if declared == -1 else declared",
        "total = length if declared == -1 else declared",
        "a few kilobytes with many buffers are taken and make every reader allocate far more than "
        "the limit",
        "tests/records/test_batch_records.py",
        planted_blind=True,
    ),
)
