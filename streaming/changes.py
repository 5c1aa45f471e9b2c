"""Changes since the checkpoint was written: of the group, or of topics that were deleted, created
again, or taken off the options, as partitions can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dledger.client.protocol.results import Lineage
from dledger.datasource.options.offsets import Positions, StreamOffset, without
from dledger.datasource.options.options import Options
from dledger.datasource.read.loss import Warnings, deleted, recreated
from dledger.datasource.table.log import GroupView, Log
from dledger.errors import WrongGroup
from dledger.protocol.messages.client import TopicInfo


class Changes:
    """The handling of such changes: an error, or by the user's option a warning, once for each."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._warnings = Warnings()
        self._shared: StreamOffset | None = None
        """The last offset of an ancestor that was found to be in the copy."""

    def group(self, given: StreamOffset, log: Log) -> str:
        """Id of the group that the next offset is of. A copy of the checkpoint's group goes on for
        it, where it has all that the checkpoint counts on: topics that both have keep their log
        ids.

        Raises:
            WrongGroup: it is another one, and that is not wanted.
        """
        now = log.lineage()
        if now.follows(given.group):
            self._check_shared(given, now, log)
            return now.group_id or given.group
        where = self._options.address
        text = (
            f"the checkpoint's offsets are of group {given.group}, and at {where} is group "
            f"{now.group_id}"
        )
        if not self._options.restart_recreated:
            raise WrongGroup(
                f"{text}: what was there was deleted and made anew, or the address is not the one "
                "that this query has read from. To read the group that is there, give the query "
                "a new checkpointLocation, or set 'onTopicRecreate' to restart; to go on, give "
                "it the path, or the 'dledger.bootstrap.servers', of the group of its checkpoint"
            )
        self._warnings.give(
            f"{text}. Going on with its topics as with topics made anew, because "
            f"'onTopicRecreate' is restart"
        )
        return now.group_id

    def _check_shared(self, given: StreamOffset, now: Lineage, log: Log) -> None:
        """That a copy of the checkpoint's group, made from a backup of it or from its last disk,
        has every record that the checkpoint counts on: behind what both share, an offset is another
        record there.

        Raises:
            WrongGroup: it does not, or cannot tell any more.
        """
        if given.group not in dict(now.ancestors) or given == self._shared:
            return
        known = given.known()
        there = log.ask(lambda client: client.shared_offsets(given.group, list(known.ids)))
        beyond = {
            f"{topic}/{partition}": (offset, there.offsets[topic].get(partition, -1))
            for topic, log_id in known.ids.items()
            if there.log_ids.get(topic) == log_id
            for partition, offset in known.logs[topic].items()
            if offset > there.offsets[topic].get(partition, -1)
        }
        if beyond:
            places = ", ".join(
                f"offset {offset} of {place} "
                + (f"(both share it up to {end})" if end >= 0 else "(it is too old to tell)")
                for place, (offset, end) in sorted(beyond.items())
            )
            raise WrongGroup(
                f"the checkpoint is of group {given.group}, and at {self._options.address} is "
                f"group {now.group_id}, which was made from a backup of that one, or recovered "
                f"from its last disk. The query has read up to {places}: what it has read behind "
                "that need not be in this log, and other records may be in its place. Restore a "
                "later backup, where there is one, or give the query a new checkpointLocation with "
                "'startingOffsets', and reconcile what its sink has"
            )
        self._shared = given

    def same(self, given: StreamOffset, view: GroupView) -> set[str]:
        """The topics of an offset that are still the same.

        Raises:
            TopicRecreated: one was created again, and that is not wanted.
            TopicNotFound: one is gone, and records of it may have been lost.
        """
        known = given.known()
        for topic, log_id in known.ids.items():
            if topic not in view.ids:
                if topic in given.ids:
                    self._gone(topic, given.logs[topic])
            elif view.ids[topic] != log_id:
                self._recreated(topic, log_id, f"behind {_places(known.logs[topic])}")
            elif left := without(given.logs.get(topic, {}), view.offsets[topic]):
                self._left(f"a part of topic {topic!r}", left)
        return {topic for topic, log_id in known.ids.items() if view.ids.get(topic) == log_id}

    def with_unread(self, end: StreamOffset, given: StreamOffset) -> StreamOffset:
        """A batch's end, with the places that ``given`` knows and the batch does not read. Of a
        topic that was deleted or created again there is no place to keep."""
        known = given.known()
        unread: Positions = {}
        for topic, places in known.logs.items():
            there = topic in end.ids
            kept = (
                end.ids[topic] == known.ids[topic]
                if there
                else not self._options.selection.fits(topic)
            )
            if kept and (rest := without(places, end.logs.get(topic, {}))):
                unread[topic] = rest
        return replace(end, unread=unread, unread_ids={topic: known.ids[topic] for topic in unread})

    def readable(
        self, starts: Positions, last: StreamOffset, infos: Mapping[str, TopicInfo]
    ) -> tuple[Positions, Positions]:
        """The part of a planned batch [starts, last) that can still be read; raises as `same`."""
        ids = {topic: info.log_id for topic, info in infos.items()}
        kept: list[str] = []
        for topic, ends in last.logs.items():
            if ids.get(topic) == last.ids[topic]:
                kept.append(topic)
            elif topic in ids:
                self._recreated(topic, last.ids[topic], _ranges(starts[topic], ends))
            elif starts[topic] != ends:
                self._gone(topic, starts[topic], _ranges(starts[topic], ends))
        return {topic: starts[topic] for topic in kept}, {topic: last.logs[topic] for topic in kept}

    def _recreated(self, topic: str, log_id: str, what: str) -> None:
        self._warnings.give(
            recreated(topic, f"records {what}", log_id, not self._options.restart_recreated)
        )

    def _gone(self, topic: str, at: Mapping[int, int], what: str = "") -> None:
        if not self._options.selection.fits(topic):
            self._left(f"topic {topic!r}", at)
            return
        lost = what or f"behind {_places(at)}"
        self._warnings.give(deleted(topic, f"records {lost}", self._options.fail_on_data_loss))

    def _left(self, what: str, at: Mapping[int, int]) -> None:
        self._warnings.give(
            f"{what} is no longer read: it was read up to {_places(at)}, and the options name it "
            "no more. The place stays in the checkpoint: the query goes on there once the options "
            "name it again"
        )


def _places(offsets: Mapping[int, int]) -> str:
    return ", ".join(
        f"offset {offset} of partition {partition}" for partition, offset in sorted(offsets.items())
    )


def _ranges(starts: Mapping[int, int], ends: Mapping[int, int]) -> str:
    parts = [
        f"{starts[p]} to {end - 1} of partition {p}"
        for p, end in sorted(ends.items())
        if end > starts[p]
    ]
    return ", ".join(parts) or "of the batch, none,"
