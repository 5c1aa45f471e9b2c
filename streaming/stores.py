"""The source of readStream over a store's files, which a broker may be writing.

A place up to which something was shown is a border behind which nothing was whole yet; in DLedger
mode nothing is shown before DLedger's checkpoint says that it is committed. So no half of a message
is seen, and nothing that a change of leader takes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from dledger.datasource.options.option_table import STREAM
from dledger.datasource.options.store_options import EARLIEST, LATEST
from dledger.datasource.read.loss import Warnings
from dledger.datasource.stores.stores import Damage, StoreReads
from dledger.errors import ConfigError, OffsetOutOfRange
from dledger.rocketmq.files.layout import COMMITLOG, Store
from dledger.rocketmq.files.tail import (
    Places,
    begins,
    bounded,
    ends,
    faults_between,
    place_at,
    ranges_between,
)
from dledger.streaming.store_offsets import StoreOffset

LOOK_S: Final = 0.05
"""How often an idle query looks whether something was written."""


class StoreStreamReader(StoreReads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a store from where the checkpoint says, or from where the options say in a new
    query."""

    def __init__(
        self,
        options: Mapping[str, str],
        schema: StructType,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(options, schema, use=STREAM)
        self._clock = clock
        self._sleep = sleep
        self._first: StoreOffset | None = None
        self._seen: Places | None = None
        self._last: Places | None = None
        self._warnings = Warnings()

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts. Spark asks several times and keeps none of the answers: the one
        that counts travels in the end of the first batch (`StoreOffset.begin`)."""
        if self._first is None:
            store = self.open()
            first = begins(store)
            if self.options.begin == LATEST:
                first = ends(store, first)
            elif self.options.begin != EARLIEST:
                stops = ends(store, first)
                first = {
                    f.name: place_at(store, f, self.options.begin, stops[f.name])
                    for f in store.forms
                }
            self._first = StoreOffset(first, init=True)
        return self._first.as_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_bytes
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on the store ends where it ends now."""
        self._last = self._seen = ends(self.open(), {})

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends. Without new messages this is ``start`` itself, after a short
        wait."""
        given = StoreOffset.from_json(start)
        store, stops = self._look(given)
        self._seen = stops
        starts = {
            name: given.places.get(name, begin)
            for name, begin in begins(store).items()
            if name in stops
        }
        added = {name: at for name, at in starts.items() if name not in given.places}
        self._check_order(starts, stops)
        kept = self._kept(store, given.places | starts, stops)
        admitted = bounded(store, {name: kept[name] for name in starts}, stops, self._most(limit))
        gone = {name: at for name, at in given.places.items() if name not in admitted}
        if admitted == starts and not given.init and not added:
            return start
        return StoreOffset(
            gone | admitted, begin=(gone | starts) if given.init else added
        ).as_json()

    def _most(self, limit: ReadLimit) -> int | None:
        match limit:
            case ReadAllAvailable():
                return None
            case ReadMaxBytes():
                return int(limit.max_bytes)
        raise ConfigError(
            f"a read of files cannot limit a batch by {type(limit).__name__}: give "
            f"'maxBytesPerTrigger'"
        )

    def _look(self, given: StoreOffset) -> tuple[Store, Places]:
        """The store, and where it ends; after a wait, unless it is further than ``given``."""
        if self._last is not None:
            return self.open(), self._last
        wait_s = self.options.wait_ms / 1000
        until = self._clock() + wait_s
        while True:
            store = self.open()
            stops = ends(store, given.places)
            if (
                given.init
                or any(stops[name] != given.places.get(name) for name in stops)
                or self._clock() >= until
            ):
                return store, stops
            self._sleep(min(wait_s, LOOK_S) if self.options.storage.is_local else wait_s)

    def _check_order(self, starts: Places, stops: Places) -> None:
        """Raises:
        OffsetOutOfRange: the store is shorter than the part read of it.
        """
        for name, stop in stops.items():
            if starts.get(name, stop) > stop:
                raise OffsetOutOfRange(
                    f"the query has read {name} of {self.options.storage.url} up to "
                    f"{starts[name]}, and it ends at {stop}: this is another store, or a broker "
                    "has given up what was read. Give the query a new checkpointLocation",
                    stop,
                    starts[name],
                )

    def _kept(self, store: Store, starts: Places, stops: Places) -> Places:
        """Where reading can start: behind the files that the broker has deleted.

        Raises:
            OffsetOutOfRange: unread messages are gone, and that is an error.
        """
        kept, lost = dict(starts), []
        for form in store.forms:
            start, stop = starts.get(form.name, form.begin), stops.get(form.name, form.begin)
            if start < min(form.begin, stop):
                lost.append(f"bytes {start} to {min(form.begin, stop)} of {form.name}")
                kept[form.name] = min(form.begin, stop)
        there = {form.name for form in store.forms}
        size = store.forms[0].files[0].span.file_end - store.forms[0].files[0].span.start
        if COMMITLOG in starts and COMMITLOG not in there and starts[COMMITLOG] % size:
            # one that was read to its end ends with a file
            lost.append(f"{COMMITLOG} from {starts[COMMITLOG]} on")
        if lost:
            self._tell_lost("; ".join(lost))
        return kept

    def _tell_lost(self, lost: str) -> None:
        text = f"files of {self.options.storage.url} were deleted before they were read: {lost}"
        if self.options.fail_on_data_loss:
            raise OffsetOutOfRange(
                f"{text}. To go on behind them set option 'failOnDataLoss' to false, or give the "
                "query a new checkpointLocation"
            )
        self._warnings.give(f"{text}; going on behind them because 'failOnDataLoss' is false")

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the store when it was last looked at, for the query's progress."""
        return StoreOffset(self._seen).as_json() if self._seen else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of the batch [start, end); the same batch at every replay, also when ``start``
        differs then."""
        first, last = StoreOffset.from_json(start), StoreOffset.from_json(end)
        starts = last.start_of_batch(first)
        store = self.open()
        there = {form.name for form in store.forms}
        starts = {
            name: at for name, at in self._kept(store, starts, last.places).items() if name in there
        }
        stops = {name: at for name, at in last.places.items() if name in there}
        Damage(store.storage.url, self.options.fail_on_damage).take_all(
            faults_between(store, starts, stops)
        )
        return self.tasks(store.storage, ranges_between(store, starts, stops))
