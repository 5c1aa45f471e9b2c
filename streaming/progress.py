"""The offsets that a query has processed, told to its consumer group."""

from __future__ import annotations

from collections.abc import Mapping

from dledger.datasource.options.offsets import Positions, StreamOffset
from dledger.datasource.options.options import Options
from dledger.datasource.read.loss import Warnings
from dledger.datasource.table.log import Log
from dledger.errors import DLedgerError, TopicNotFound


class Progress:
    """Tells the group of option ``groupId``, once for each change. The query itself goes by its
    checkpoint, so a group that cannot be told does not stop it: it is told with the next change, or
    when the query starts again."""

    def __init__(self, options: Options, log: Log) -> None:
        self._group = options.group_id
        self._hold = options.hold_retention
        self._log = log
        self._told: dict[tuple[str, str], dict[int, int]] = {}
        self._warnings = Warnings()

    def publish(self, done: StreamOffset) -> None:
        """All records below ``done`` are processed; for a new query: it starts there, and wants
        none of them."""
        if not self._group:
            return
        news: Positions = {}
        for topic, log_id in done.ids.items():
            told = self._told.get((topic, log_id), {})
            if changed := {
                p: offset for p, offset in done.logs[topic].items() if told.get(p) != offset
            }:
                news[topic] = changed
        if not news:
            return
        try:
            self._tell(news, done.ids)
        except DLedgerError as error:
            self._warnings.give(
                f"consumer group {self._group!r} was not told how far this query is: {error}"
            )
        else:
            self._told |= {(topic, done.ids[topic]): done.logs[topic] for topic in news}

    def _tell(self, news: Positions, ids: Mapping[str, str]) -> None:
        try:
            self._commit(news, ids)
        # of one that is gone, or another one by now, there is nothing to tell
        except TopicNotFound:
            there = {
                info.name: info.log_id for info in self._log.ask(lambda client: client.topics())
            }
            self._commit(
                {
                    topic: offsets
                    for topic, offsets in news.items()
                    if there.get(topic) == ids[topic]
                },
                ids,
            )
        if self._hold is not None:
            hold = self._hold
            self._log.ask(lambda client: client.hold_retention(self._group, hold))
            self._hold = None

    def _commit(self, offsets: Positions, ids: Mapping[str, str]) -> None:
        log_ids = {topic: ids[topic] for topic in offsets}
        if offsets:
            self._log.ask(
                lambda client: client.commit_offsets(self._group, offsets, log_ids=log_ids)
            )
