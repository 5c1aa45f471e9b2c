"""What a reader of one partition gives of each record."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from dledger.client.protocol.client_state import ClientState, Operation
from dledger.client.protocol.operations.schemas import schemas
from dledger.client.protocol.reading.fetched import FetchedBodies
from dledger.client.protocol.reading.reading import records
from dledger.client.protocol.reading.views import TypedReading, with_partition
from dledger.errors import ConfigError
from dledger.protocol.messages.client import TopicInfo
from dledger.records.columns.types import Columns


class ReadShape:
    """The columns of a `read`; see its arguments.

    Raises:
        ConfigError: there is no such ``value_format``.
    """

    def __init__(self, partition: int, *, with_metadata: bool, value_format: str) -> None:
        if value_format not in {"", "json"}:
            raise ConfigError(f"value_format is {value_format!r}: it can be 'json', or left away")
        self._partition = partition
        self._with_metadata = with_metadata
        self._as_json = value_format == "json"
        self._log_id = ""
        self._typed: TypedReading | None = None

    def begin(self, core: ClientState, info: TopicInfo) -> Operation[None]:
        """A read of this topic begins, or goes on."""
        if info.log_id == self._log_id:
            return
        self._typed = None
        if info.typed and not self._as_json:
            versions = yield from schemas(core, info)
            self._typed = TypedReading.start(self._partition, versions, self._with_metadata)
        self._log_id = info.log_id

    def rows(
        self, bodies: FetchedBodies, start: int, end: int | None, columns: Columns | None
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """The records within [start, end), each batch with the offset behind it. Of a typed topic
        one body at a time, which was written under ``columns``."""
        if self._typed is not None and columns is not None:
            yield from self._typed.rows(bodies, start, end, columns)
            return
        for batch, behind in records(bodies, start, end, columns):
            yield with_partition(batch, self._partition) if self._with_metadata else batch, behind
