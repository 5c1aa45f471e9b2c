"""Bugs of what looks for damage: a slave before it stores a message, and the checks of a whole
RocketMQ store."""

from __future__ import annotations

from typing import Final

from verification.mutants.plant import Mutant

DAMAGE: Final = (
    Mutant(
        "slave-stores-before-it-looks",
        "P7",
        "rocketmq.ha.checked_log",
        "CheckedLog.append_raw",
        "            self._check(looked)\n",
        "            log.append_raw(offset, whole)\n            self._check(looked)\n",
        "a damaged message stays in the slave's log, which then cannot start",
        "tests/rocketmq/store/test_broker_slave_damage.py",
    ),
    Mutant(
        "slave-begun-message-stays",
        "P7",
        "rocketmq.ha.checked_log",
        "CheckedLog.append_raw",
        "                log.files.truncate_dirty(self._sound)\n",
        "                self._needed = 0\n",
        "what was stored of a message before its damage was seen stays",
        "tests/rocketmq/store/test_checked_log.py",
    ),
    Mutant(
        "slave-reports-begun-messages",
        "P1",
        "rocketmq.ha.checked_log",
        "CheckedLog.sound_offset",
        "return min(self._sound, self._log.max_offset)",
        "return self._log.max_offset",
        "a message is acknowledged before its last byte was looked at",
        "tests/rocketmq/store/test_broker_slave_damage.py",
    ),
    Mutant(
        "slave-takes-zeros",
        "P7",
        "rocketmq.ha.checked_log",
        "CheckedLog._check",
        "if not any(view[at : at + PAIR]):",
        "if at and not any(view[at : at + PAIR]):",
        "zeros where a message must be are stored",
        "tests/rocketmq/store/test_checked_log.py",
    ),
    Mutant(
        "slave-waits-for-any-size",
        "P7",
        "rocketmq.ha.checked_log",
        "CheckedLog._check",
        "if claimed > size - self._sound % size:",
        "if claimed > 1 << 30:",
        "a slave stores on and acknowledges nothing any more, where a damaged size leads out of "
        "the file",
        "tests/rocketmq/store/test_checked_log.py",
    ),
    Mutant(
        "slave-many-without-crc",
        "P7",
        "rocketmq.ha.checked_log",
        "CheckedLog._check_chunk",
        "rows = sound_rows(view, self._sound, check=True)",
        "rows = sound_rows(view, self._sound)",
        "bodies are not compared with their CRC where many messages come at once",
        "tests/rocketmq/store/test_checked_log.py",
    ),
    Mutant(
        "slave-many-with-any-properties",
        "P7",
        "rocketmq.ha.checked_log",
        "CheckedLog._check_chunk",
        "            chunk.columns.properties_text().validate(full=True)\n",
        "            chunk.columns.properties_text().validate()\n",
        "properties that are no text are stored where many messages come at once",
        "tests/rocketmq/store/test_checked_log.py",
    ),
    Mutant(
        "slave-many-with-any-topic",
        "P14",
        "rocketmq.ha.checked_log",
        "CheckedLog._check_chunk",
        "                checked_topic(topic)\n",
        "                str(topic)\n",
        "a topic that leads to another folder is stored where many messages come at once",
        "tests/rocketmq/store/test_checked_log.py",
    ),
    Mutant(
        "slave-many-forget-where-queues-end",
        "P7",
        "rocketmq.ha.checked_log",
        "CheckedLog._check_chunk",
        "            self._next |= ends\n",
        "            self._next = {**ends, **self._next}\n",
        "a queue offset is compared with where the queue ended before",
        "tests/rocketmq/store/test_checked_log.py",
    ),
    Mutant(
        "slave-many-with-gaps",
        "P7",
        "rocketmq.ha.checked_log",
        "CheckedLog._ends_behind",
        "if not possible or bool((np.diff(offsets) != 1).any()):",
        "if not possible:",
        "only the first message of a queue is compared with where the queue ends",
        "tests/rocketmq/store/test_checked_log.py",
    ),
    Mutant(
        "slave-many-with-any-queue",
        "P7",
        "rocketmq.ha.checked_log",
        "CheckedLog._ends_behind",
        "possible = (\n"
        "                0 <= key[1] <= MAX_QUEUE_ID\n"
        "                and 0 <= first <= end + self._units\n"
        "                and last <= MAX_QUEUE_OFFSET\n"
        "            )",
        "possible = 0 <= first <= end + self._units and last <= MAX_QUEUE_OFFSET",
        "a message of a queue that cannot be is stored",
        "tests/rocketmq/store/test_checked_log.py",
    ),
)
