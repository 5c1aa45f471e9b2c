"""Bugs of a group that keeps a RocketMQ commit log, and of a broker's files."""

from __future__ import annotations

from typing import Final

from dledger.testing.mutants.plant import ROCKETMQ, Mutant

BROKER: Final = (
    Mutant(
        "gets-show-what-was-replaced", "D8 B2", "node.rocketmq.gets", "Gets._message_at",
        "applied = self._catalog.applied_index",
        "applied = self._driver.raft.committed_index",
        "a message that was never committed is shown while its cut waits for the disk",
        "tests/node/test_server_gets.py",
    ),
    Mutant(
        "gets-show-an-old-tail", "D8 B2", "node.rocketmq.gets", "Gets._ask",
        "if self._needs > min(raft.committed_index, raft.durable_index):",
        "if self._needs > raft.end_index + (1 << 40):",
        "beside a catalog that was taken over, what the log still has is taken for what is applied",
        "tests/node/test_server_gets.py",
    ),
    Mutant(
        "gets-lead-past-the-first", "B25", "node.rocketmq.gets", "Gets._get",
        "return self._get_nothing(request, asked.next_offset, lags=lags)",
        "end = self._catalog.queues.next.get((request.topic, request.queue_id), 0)\n"
        "            return self._get_nothing(request, end, lags=lags)",
        "a consumer of an empty queue is sent behind its first message",
        "tests/node/test_server_gets.py",
    ),
    Mutant(
        "gets-lag-is-retention", "B25 B34", "node.rocketmq.gets", "Gets._get_nothing",
        "if end and lags:",
        "if end < 0 and lags:",
        "messages that a node has not put into its queues yet are called gone",
        "tests/node/test_server_gets.py",
    ),
    Mutant(
        "gets-unapplied-is-gone", "B25 B34", "node.rocketmq.gets", "Gets._message_at",
        "(is_known and pos >= store.begin.end_pos)",
        "(is_known and pos >= store.end.end_pos)",
        "a consumer is sent past a message that is in its queue and not applied yet",
        "tests/node/test_server_gets.py",
    ),
    Mutant(
        "store-place-beside-a-cut", "B7", "storage.log.reader", "Reader._look",
        "not self.unchanged(view) or ",
        "",
        "a look for an entry beside a cut or retention is reported as damage",
        "tests/storage/test_store_parts.py",
    ),
    Mutant(
        "reput-goes-on-after-a-failure", "D2", "node.rocketmq.reput_service", "ReputMessageService._unless_failed",
        "if not self._driver.failed:",
        "if self._driver is not None:",
        "messages are put into queues and index by a node whose disk has failed",
        "tests/node/test_server_reput.py",
    ),
    Mutant(
        "slave-reports-what-came-meanwhile", "D1 B5", "rocketmq.ha.follower", "Follower._flush",
        "        end = self._log.sound_offset\n"
        "        await asyncio.get_running_loop().run_in_executor(self._disk, self._flush_log)\n        return end",
        "        await asyncio.get_running_loop().run_in_executor(self._disk, self._flush_log)\n"
        "        return self._log.sound_offset",
        "a sync master is told that what came during a flush is on the slave's disk",
        "tests/rocketmq/store/test_broker_ha.py",
    ),
    Mutant(
        "slave-forgets-a-failed-flush", "D2 B10", "rocketmq.ha.follower", "Follower._flush_log",
        "self._failed = error",
        "self._failed = None",
        "a flush that failed is tried again, succeeds, and tells nothing",
        "tests/rocketmq/store/test_broker_ha.py",
    ),
    Mutant(
        "mapped-marks-before-the-write", "D2 B5", "rocketmq.store.mapped_file_queue", "MappedFileQueue.append",
        "            try:\n"
        "                with self._handles.using(\"write\", path) as handle:\n"
        "                    write_at(handle, part, at - start)\n"
        "            finally:  # before it counts as written: a flush that takes the marks now must not be the last "
        "one for it\n"
        "                self._mark(start)",
        "            self._mark(start)\n"
        "            with self._handles.using(\"write\", path) as handle:\n"
        "                write_at(handle, part, at - start)",
        "a write beside a flush is not synced by the next one",
        "tests/rocketmq/store/test_broker_threads.py",
    ),
    Mutant(
        "mapped-cut-beside-a-flush", "D2 B5", "rocketmq.store.mapped_file_queue", "MappedFileQueue.truncate_dirty",
        "with self._flushing:",
        "with threading.Lock():",
        "what is written again after a cut counts as durable by a flush from before",
        "tests/rocketmq/store/test_broker_threads.py",
    ),
    Mutant(
        "mapped-name-before-its-predecessors", "B13", "rocketmq.store.mapped_file_queue", "MappedFileQueue._make",
        "self._sync_names(self._names)",
        "self._sync_names(self._names - 1)",
        "a power cut leaves a log with a file missing in its middle",
        "tests/rocketmq/store/test_broker_threads.py",
    ),
    Mutant(
        "mapped-files-go-in-any-order", "B13", "rocketmq.store.mapped_file_queue", "MappedFileQueue._remove",
        "        self._sync_names(self._removed)\n",
        "",
        "a power cut behind a cut or a deletion of several files leaves one of them without its neighbour: no start",
        "tests/rocketmq/store/test_mapped_files.py",
    ),
    Mutant(
        "mapped-read-beside-a-cut", "B7", "rocketmq.store.mapped_file_queue", "MappedFileQueue.read",
        "            if self._cuts == cuts:\n                return data",
        "            if self._cuts >= cuts:\n                return data",
        "a reader gets some bytes from before a cut and some from after it",
        "tests/rocketmq/store/test_broker_threads.py",
    ),
    Mutant(
        "handles-closed-in-use", "B7", "rocketmq.store.files", "FileHandles._let_go",
        "if handle in self._users:",
        "if handle in self._leaving:",
        "a descriptor is closed and given to another file while a thread reads or writes by it",
        "tests/rocketmq/store/test_broker_threads.py",
    ),
    Mutant(
        "store-flushed-by-another-thread", "B13", "rocketmq.store.message_store", "MessageStore.flush",
        "        self._check_thread()\n",
        "",
        "two threads write queues, index and checkpoint at once",
        "tests/rocketmq/store/test_broker_threads.py",
    ),
    Mutant(
        "puts-count-without-those-under-way", "B17", "node.rocketmq.puts", "Puts._settle",
        "if self._settled is None or self._settled_term != term:",
        "if self._settled is None or self._settled_term <= term:",
        "queue offsets of messages that are not committed yet are given out again",
        ROCKETMQ,
    ),
    Mutant(
        "puts-go-on-with-an-old-count", "B17", "node.rocketmq.puts", "Puts._settle",
        "if self._settled is None or self._settled_term != term:",
        "if self._settled is None:",
        "a leader that led before gives out queue offsets that another one has given meanwhile",
        ROCKETMQ,
    ),
    Mutant(
        "puts-before-caught-up", "B17", "node.rocketmq.puts", "Puts._propose",
        "is_ready=self._writes.caught_up",
        "is_ready=True",
        "a leader counts queue offsets before it has applied what earlier leaders gave",
        ROCKETMQ,
    ),
    Mutant(
        "puts-open-end-is-definite", "D9 B23", "node.rocketmq.puts", "Puts.finished",
        "code = Code.TERM_CHANGED if finished.code is Code.EXPIRED_TERM else finished.code",
        "code = Code.NOT_LEADER",
        "a put that may still be committed is called not written",
        ROCKETMQ,
    ),
    Mutant(
        "reput-dispatches-uncommitted", "D8 B2", "node.rocketmq.reput_service", "ReputMessageService._next",
        "begin, end = self.dispatched_index + 1, self._committed + 1",
        "begin, end = self.dispatched_index + 1, self._driver.raft.end_index + 1",
        "queues have messages that may still go",
        ROCKETMQ,
    ),
    Mutant(
        "dispatched-marks-an-unsynced-index", "D2 B5", "node.rocketmq.dispatched", "Dispatched._write_mark",
        "        self.index.flush()\n",
        "        self.index.write()\n",
        "a mark speaks of keys that a power cut has taken",
        "tests/testing/test_sim_broker.py",
    ),
    Mutant(
        "dispatched-loses-its-place", "B6", "node.rocketmq.dispatched", "Dispatched._recover",
        "self.next_index, self._end_pos = Index(at + 1), end_pos",
        "self.next_index, self._end_pos = Index(at + 2), end_pos",
        "after a restart one message is in no queue",
        ROCKETMQ,
    ),
    Mutant(
        "dispatched-takes-any-index", "B6", "node.rocketmq.dispatched", "Dispatched._missing",
        "if lacks_keys and not is_torn else",
        "if False else",
        "where the index was lost, old messages are not found by their keys any more",
        "tests/node/test_server_reput.py",
    ),
    Mutant(
        "dispatched-compares-behind-a-cut", "B6", "node.rocketmq.dispatched", "Dispatched._recover",
        "        if missing:\n",
        "        if missing and mark.index <= end.position.index:\n",
        "where the log is shorter than what was dispatched, lost queues are not missed",
        "tests/node/test_server_dispatched.py",
    ),
    Mutant(
        "store-takes-any-queues", "B6 B17", "rocketmq.store.dispatch_checkpoint", "StoreMark.is_met",
        "queue.max_offset < told.next_offset",
        "queue.max_offset < 0",
        "a queue that has lost its last file gives out its last offsets again",
        "tests/rocketmq/store/test_store_losses.py",
    ),
    Mutant(
        "store-takes-any-index", "B6 B17", "rocketmq.store.dispatch_checkpoint", "StoreMark.is_met",
        ".issuperset(self.index)",
        ".issuperset(())",
        "where a file of the index was lost, messages are not found by their keys any more",
        "tests/rocketmq/store/test_store_losses.py",
    ),
    Mutant(
        "store-trusts-an-old-mark", "B6 B17", "rocketmq.store.message_store", "MessageStore._recover",
        "not (found.end if begin is None else begin) <= mark.end <= found.end",
        "mark.end > found.end",
        "what was lost of a queue that came between the mark and the begin of a recovery is not put again",
        "tests/rocketmq/store/test_store_losses.py",
    ),
    Mutant(
        "store-deletes-before-its-mark", "B6 B17", "rocketmq.store.message_store", "MessageStore.delete_before",
        "            self.flush()\n",
        "            pass\n",
        "a queue that lost all messages to a deletion, and then its files, gives out its offsets from 0 again",
        "tests/rocketmq/store/test_store_losses.py",
    ),
    Mutant(
        "store-marks-too-seldom", "B6 B17", "rocketmq.store.message_store", "MessageStore.close",
        "            self._is_mark_due |= self._mark is None or self._mark.end != self.reput.offset\n",
        "",
        "each start reads all of the log, though the store was closed",
        "tests/rocketmq/store/test_store_flush.py",
    ),
    Mutant(
        "store-takes-fillers-for-messages", "B6 B17", "rocketmq.store.completeness", "Survey._has",
        "sum(not unit.is_filler for units in parts for unit in units) >= count",
        "sum(not unit.is_filler for units in parts for unit in units) > 0",
        "messages of a queue that were lost before a crash are not put again where a recovery put later ones",
        "tests/rocketmq/store/test_store_losses.py",
    ),
    Mutant(
        "store-forgets-ends-of-empty-queues", "B6 B17", "rocketmq.store.dispatch_checkpoint", "StoreMark.of",
        "{} if former is None else dict(former.queues)",
        "{}",
        "a queue without messages that has lost its files begins at 0 again",
        "tests/rocketmq/store/test_store_losses.py",
    ),
)
