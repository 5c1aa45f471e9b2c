"""Which rows of a batch go to which partition. Over whole columns, no loop over rows."""

from __future__ import annotations

from array import array

import pyarrow as pa
import pyarrow.compute as pc

from dledger.errors import ConfigError
from dledger.records.columns.arrays import number_column, repeated
from dledger.records.columns.partitioner import (
    Division,
    divided_by_codes,
    divided_by_key,
    partitions_for,
    whole,
)


class Spread:
    """A row's partition is, in this order: the one that it asks for; by its key, as Kafka does; one
    for the whole batch, another one each time, starting at ``first``. With ``roundRobin`` each row
    has the next one; with ``explicit`` only the asked one counts."""

    def __init__(self, partitioner: str = "murmur2", first: int = 0) -> None:
        self._partitioner = partitioner
        self._turn = first

    def next_batch(self) -> None:
        """Rows that say nothing go to another partition from now on."""
        self._turn += 1

    def spread(
        self,
        topic: str,
        count: int,
        rows: int,
        keys: pa.Array | None,
        asked: pa.Array | None = None,
    ) -> Division:
        """Which rows go to which partition.

        Args:
            count: partitions of the topic.
            keys: binary, or None where there are none.
            asked: partition numbers, or None where the frame has no such column.

        Raises:
            ConfigError: a row asks for a partition that the topic does not have, or asks for none
                and must.
        """
        if asked is not None:
            self._check_asked(topic, count, asked)
            asked = None if asked.null_count == len(asked) else asked
        if count == 1:
            return whole(0, rows)
        if self._partitioner == "roundRobin":
            first = self._turn % count
            turns = array("i", [*range(first, count), *range(first)]) * -(-rows // count)
            self._turn = (self._turn + rows - 1) % count  # next_batch() has added one
            return divided_by_codes(number_column(pa.int32(), turns[:rows]))
        if asked is not None:
            return divided_by_codes(self._partitions(asked, keys, count, rows))
        if keys is None:
            return whole(self._turn % count, rows)
        return divided_by_key(keys, count, keyless=self._turn % count)

    def _check_asked(self, topic: str, count: int, asked: pa.Array) -> None:
        if asked.null_count and self._partitioner == "explicit":
            raise ConfigError(
                "column 'partition' is null in some rows, and option 'partitioner' is explicit: "
                "fill it, or set the option to murmur2 to have these rows spread by key"
            )
        low, high = pc.min_max(asked).as_py().values()
        if low is not None and (low < 0 or high >= count):
            wrong = low if low < 0 else high
            raise ConfigError(
                f"column 'partition' has {wrong}, but topic {topic!r} has partitions 0 to "
                f"{count - 1}: drop the "
                "column to have rows spread by key, or create the topic with more partitions"
            )

    def _partitions(
        self, asked: pa.Array, keys: pa.Array | None, count: int, rows: int
    ) -> pa.Array:
        turn = self._turn % count
        if keys is None:
            chosen = repeated(pa.int32(), turn, rows)
        else:
            chosen = partitions_for(keys, count, keyless=turn)
        return pc.coalesce(asked.cast(pa.int32()), chosen)
