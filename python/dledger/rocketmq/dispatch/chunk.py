"""Many messages of a log at once, by numpy and Arrow: all that is known of them before they are put
anywhere.

A node, which loads no Arrow, does not use this.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dledger.rocketmq.columns.borders import Fields, Rows, walk_messages
from dledger.rocketmq.columns.commit_log import first_false
from dledger.rocketmq.columns.messages import MessageColumns
from dledger.rocketmq.dispatch.build_consume_queue import IN_QUEUE, ROLLBACK
from dledger.rocketmq.with_numpy import np, npt

Ints = npt.NDArray[np.int64]
FEW: Final = 32
"""Fewer messages are not worth columns."""
MOST: Final = 1 << 17


def sound_rows(view: memoryview, start: int, *, check: bool = False) -> Rows | None:
    """Whole messages that follow one another from the first byte on and have sizes that add up;
    None where they are few.

    Args:
        start: offset in the log of the first byte, which each message must agree with.
        check: compare bodies with their CRC.
    """
    at = np.array(walk_messages(view, 0, len(view), MOST), np.int64)
    if len(at) < FEW:
        return None
    rows = Rows(Fields(view), view, at, len(view) - at)
    sound = rows.adds_up & rows.placed(start)
    rows = rows.first(first_false(sound))
    if check:
        rows = rows.first(rows.first_bad_crc())
    return None if len(rows.at) < FEW else rows


class Chunk:
    """Topic, queue and place of each of these messages, as columns; rows are numbered from 0.

    Raises:
        UnicodeDecodeError: the name of a topic is not UTF-8.
    """

    def __init__(self, rows: Rows, start: int) -> None:
        fields = rows.fields
        self.columns = MessageColumns(rows, start=start)
        self.places: Ints = rows.at + start
        self.sizes = rows.size
        self.end = int(self.places[-1] + self.sizes[-1])
        self.queue_ids = fields.int32(rows.at + 12)
        self.queue_offsets = fields.int64(rows.at + 20)
        self.state: Ints = rows.sys_flag & ROLLBACK
        topics = self.columns.column("topic").dictionary_encode()
        self.topics: list[str] = topics.dictionary.to_pylist()
        self.topic_codes: Ints = topics.indices.to_numpy().astype(np.int64)

    def queues(self) -> Iterator[tuple[tuple[str, int], Ints]]:
        """Topic and queue id, and the rows that get a unit in that queue, in their order."""
        chosen = np.flatnonzero(np.isin(self.state, IN_QUEUE))
        groups = self.topic_codes[chosen] << 32 | self.queue_ids[chosen] & 0xFFFF_FFFF
        order = np.argsort(groups, kind="stable")
        for rows in np.split(chosen[order], np.flatnonzero(np.diff(groups[order])) + 1):
            if len(rows):
                topic = self.topics[int(self.topic_codes[rows[0]])]
                yield (topic, int(self.queue_ids[rows[0]])), rows
