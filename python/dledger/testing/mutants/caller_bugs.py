"""Bugs of what callers hold in their hands: clients, batches, groups in a directory."""

from __future__ import annotations

from typing import Final

from dledger.testing.mutants.plant import Mutant

CALLERS: Final = (
    Mutant(
        "window-lost-is-known", "P5", "client.window", "Window.lost",
        "            item.maybe = True\n",
        "            item.maybe = False\n",
        "a batch that was sent on a lost connection is called not written when it is given up",
        "tests/client/test_window.py",
        planted_blind=True,
    ),
    Mutant(
        "window-late-resend-behind-new", "P2", "client.window", "Window.next",
        "if self.again or not self.waiting:",
        "if not self.waiting:",
        "a new batch overtakes one that has to be sent again",
        "tests/client/test_window.py",
        planted_blind=True,
    ),
    Mutant(
        "window-expired-keeps-session", "P5", "client.window", "Window.expire",
        "                if item.sequence >= 0:\n                    self._session = None\n",
        "",
        "a number that was given up leaves a gap for ever",
        "tests/client/test_window.py",
        planted_blind=True,
    ),
    Mutant(
        "window-renumber-maybe-done", "P5", "client.window", "Window._refused",
        "if code in LOST_SESSION and not item.maybe:",
        "if code in LOST_SESSION:",
        "a batch that may have been written is written again under another number",
        "tests/client/test_window.py",
        planted_blind=True,
    ),
    Mutant(
        "fetch-overlap-refused", "P3", "client.fetching", "Fetcher.take",
        "last <= position or",
        "last < position or",
        "an answer with nothing new is taken for progress",
        "tests/client/test_fetching.py",
        planted_blind=True,
    ),
    Mutant(
        "fetch-crc-unchecked", "P7", "client.fetching", "Fetcher.take",
        "if batch.crc and crc32(body) != batch.crc:",
        "if not batch.crc and crc32(body) != batch.crc:",
        "a body that was changed on its way is given to the reader",
        "tests/client/test_client.py tests/client/test_replicas.py",
        planted_blind=True,
    ),
    Mutant(
        "fetch-gap-taken", "P3", "client.fetching", "Fetcher.take",
        "batch.base_offset > position or",
        "batch.base_offset > position + 1 or",
        "a reader skips one offset before a batch",
        "tests/client/test_fetching.py",
        planted_blind=True,
    ),
    Mutant(
        "grouping-first-offset-of-last", "P3", "client.grouping", "Pending.answered",
        "self.start = result if self.start < 0 else min(self.start, result)",
        "self.start = result",
        "an append that was cut is told where its last piece begins",
        "tests/client/test_grouping.py",
        planted_blind=True,
    ),
    Mutant(
        "grouping-half-is-definite", "P5", "client.grouping", "Pending._whole",
        "if self.start < 0 or not error.definite:",
        "if error.definite:",
        "an append of which a part was written is called not written",
        "tests/client/test_grouping.py",
        planted_blind=True,
    ),
    Mutant(
        "grouping-offsets-not-moved", "P3", "client.grouping", "Batch.answered",
        "                offset += count\n",
        "                offset += 1\n",
        "appends that share a batch are told one another's offsets",
        "tests/client/test_grouping.py",
        planted_blind=True,
    ),
    Mutant(
        "grouping-keys-shifted", "P7", "client.grouping", "Grouper.add_value",
        "        group.keys.append(key)\n",
        "        if key is not None:\n            group.keys.append(key)\n",
        "keys come to other values than they were given with",
        "tests/client/test_grouping.py",
        planted_blind=True,
    ),
    Mutant(
        "ends-go-back", "P4", "client.ends", "Ends._lift",
        "ends[at] = max(end, ends.get(at, 0))",
        "ends[at] = end",
        "a client forgets how far it has seen a log reach",
        "tests/client/test_ends.py",
        planted_blind=True,
    ),
    Mutant(
        "ends-of-the-topic-before", "P4", "client.ends", "behind",
        "answer.log_ids.get(topic, \"\")",
        "next(iter(known.get(topic, {})), \"\")",
        "a topic that was created anew counts as behind for ever",
        "tests/client/test_ends.py",
        planted_blind=True,
    ),
    Mutant(
        "routes-silent-leader-kept", "P11", "client.routing", "Routes.failed",
        "        if self.leader == address:\n            self.leader = None",
        "        if self.leader != address:\n            self.leader = None",
        "a leader that fell silent is asked for ever",
        "tests/client/test_routing.py",
        planted_blind=True,
    ),
    Mutant(
        "stage-sum-one-batch-less", "P12", "client.staging", "Stage.append_batch",
        "                self._batches += 1\n",
        "                self._batches += not self._batches\n",
        "a commit names fewer batches than were staged",
        "tests/client/test_producer.py",
        planted_blind=True,
    ),
)

BATCHES: Final = (
    Mutant(
        "coalesce-drops-last", "P1", "batch.sizes", "coalesce",
        "            yield _together(held)\n            held, total = [], OVERHEAD",
        "            yield _together(held)\n            held, total = [], OVERHEAD - size",
        "bodies that are put together grow over the limit",
        "tests/batch/test_batch_sizes.py",
        planted_blind=True,
    ),
    Mutant(
        "evolution-long-in-double", "P6", "batch.evolution", "holds",
        "return narrow.name != \"long\"",
        "return True",
        "a long is written to a double and loses its last digits",
        "tests/batch/test_evolution.py",
        planted_blind=True,
    ),
)

EMBEDDED: Final = (
    Mutant(
        "group-newer-format", "P6", "embedded.groupfile", "GroupFile.decode",
        "if data[\"format\"] > FORMAT:",
        "if data[\"format\"] > FORMAT + 1:",
        "a group file of a newer release is read as if it were known",
        "tests/embedded/test_embedded_home.py",
        planted_blind=True,
    ),
    Mutant(
        "process-reused-pid", "P11", "embedded.process", "ProcessId.alive",
        "bool(self.started) and start_time(self.pid) == self.started",
        "bool(start_time(self.pid))",
        "a process that has got a dead one's pid keeps its group alive",
        "tests/embedded/test_embedded_process.py",
        planted_blind=True,
    ),
    Mutant(
        "home-write-not-synced", "P1", "embedded.home", "Home.write",
        "                os.fsync(out.fileno())\n",
        "",
        "a group's file is empty after a power failure",
        "tests/embedded/test_embedded_home.py",
        planted_blind=True,
    ),
    Mutant(
        "home-zombie-is-gone", "P11", "embedded.home", "Home.wait_gone",
        "if not process.alive and not self.node(node_id).running:",
        "if not process.alive:",
        "a node is started while the one before still holds its files",
        "tests/embedded/test_embedded_home.py",
        planted_blind=True,
    ),
    Mutant(
        "nodelog-never-bounded", "P8", "embedded.nodelog", "BoundedLog.bound",
        "st_size < self._max_bytes",
        "st_size <= self._max_bytes * 2",
        "a node's log grows to twice its bound",
        "tests/embedded/test_embedded_process.py",
        planted_blind=True,
    ),
)
