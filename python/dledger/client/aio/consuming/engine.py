"""A consumer's work: heartbeats, fetches, positions and commits, on one event loop.

The shells ask it for the `next` thing: a change of partitions, or one that has records. It changes
nothing by answering: a shell that is interrupted asks again, and is given the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final

from dledger.client.aio.consuming.fetching import PartitionFetch
from dledger.client.aio.consuming.heartbeats import Heartbeats
from dledger.client.aio.transport import AsyncTransport
from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.consuming.partitions import HeldPartition
from dledger.client.protocol.consuming.settings import ConsumerSettings, TopicPartition
from dledger.client.protocol.consuming.state import ConsumerState, ShareChange, ShareChangeKind
from dledger.client.protocol.consuming.transactions import ConsumedOffsets
from dledger.client.protocol.operations import consumer_groups, offsets_by_time
from dledger.client.protocol.operations.group_membership import commit_consumed
from dledger.client.protocol.operations.offsets import topic_offsets
from dledger.errors import (
    ConfigError,
    ConsumerFenced,
    DLedgerError,
    OffsetOutOfRange,
    TopicNotFound,
)
from dledger.protocol.messages.client import OffsetKind, TopicInfo

logger = logging.getLogger(__name__)

LEAST_FETCH: Final = 64 << 10
MOST_FETCH: Final = 4 << 20
"""Stored bytes of one fetch."""
Offsets = Mapping[tuple[str, int], int]


class ConsumerEngine:
    """One consumer. All of it is called on one loop."""

    def __init__(
        self,
        core: ClientState,
        transport: AsyncTransport,
        *,
        settings: ConsumerSettings,
        state: ConsumerState | None = None,
    ) -> None:
        """``state``: for tests, which watch it."""
        self.settings = settings
        self.state = state or ConsumerState(settings.group)
        self.is_closed = False
        self.transactions = ConsumedOffsets(self.state)
        self._core = core
        self._transport = transport
        self._now_ms = core.environment.now_ms
        self._changed = asyncio.Event()
        self._heartbeats = Heartbeats(
            core, transport, settings=settings, state=self.state, on_change=self._changed.set
        )
        self._fetches: dict[int, PartitionFetch] = {}
        self._commit_at_ms = self._next_commit_ms()
        self._asking: asyncio.Task[object] | None = None

    async def open(self) -> None:
        """Join the group.

        Raises:
            TopicNotFound: a topic that was named is not there.
            ConfigError: the group does not take a name or the time-out.
        """
        try:
            await self._heartbeats.open()
        except BaseException:
            await self.close(commit=False)  # it may have joined
            raise

    async def close(self, *, commit: bool) -> None:
        """End: commit where commits are made by time, and leave the group, for a while with an
        ``instance_id``."""
        if self.is_closed:
            return
        self.is_closed = True
        self._changed.set()
        try:
            if commit and self.settings.commit_s is not None:
                await self._commit_all()
        except ConsumerFenced as error:
            logger.warning("%s", error)
        finally:
            for fetching in self._fetches.values():
                fetching.stop()
            await self._heartbeats.close()

    # --- what comes next

    async def next(self, timeout_s: float | None) -> ShareChange | HeldPartition | None:
        """A change that is to be carried out (`settle`), or a partition that has records; None when
        there is neither in time, or the consumer is closed.

        Raises:
            ConsumerFenced: another consumer has this one's instance id.
            DLedgerError: a partition cannot be read.
        """
        if self._asking is not None and self._asking is not asyncio.current_task():
            self._asking.cancel()  # its caller was interrupted
        self._asking = asyncio.current_task()
        deadline = None if timeout_s is None else self._now_ms() + 1000 * timeout_s
        self._heartbeats.polling()
        try:
            return await self._next(deadline)
        finally:
            self._heartbeats.polled()
            if self._asking is asyncio.current_task():
                self._asking = None

    async def _next(self, deadline_ms: float | None) -> ShareChange | HeldPartition | None:
        while not self.is_closed:
            self._changed.clear()
            change = await self._change()
            if change is not None:
                return change
            if self._heartbeats.failed is not None:
                raise self._heartbeats.failed
            now_ms = self._now_ms()
            if self._commit_at_ms is not None and now_ms >= self._commit_at_ms:
                await self._commit_in_time()
                continue
            if self.state.may_deliver(now_ms) and (held := self.state.ready()) is not None:
                if held.wants_more:
                    self._fetches[held.key].room()
                return held
            self._raise_failed_fetch()
            if deadline_ms is not None and now_ms >= deadline_ms:
                return None
            ends = [one for one in (deadline_ms, self._commit_at_ms) if one is not None]
            with suppress(TimeoutError):
                async with asyncio.timeout((min(ends) - now_ms) / 1000 if ends else None):
                    await self._changed.wait()
        return None

    def _raise_failed_fetch(self) -> None:
        for fetching in self._fetches.values():
            if (error := fetching.failed) is not None:
                fetching.start()
                raise error

    async def _change(self) -> ShareChange | None:
        """A change for the program. What it has done is committed before, where that is by time;
        and what it is given begins where the group is."""
        change = self.state.changes()
        if change is None or change.kind is ShareChangeKind.LOST:
            return change
        if change.kind is ShareChangeKind.REVOKED:
            if self.settings.commit_s is not None:
                await self._commit_in_time()
            return self.state.changes()
        wanted = {key: self.state.assigned[key] for key in change.keys if key not in self._fetches}
        try:
            positions = await self._starts(list(wanted))
        except (ConsumerFenced, TopicNotFound) as error:  # another answer of the group will say so
            logger.info("%s", error)
            self._heartbeats.hurry()
            return None
        for key, position in positions.items():
            # else another member may have had it meanwhile, and have committed more
            if self.state.assigned.get(key) == wanted[key] and key not in self._fetches:
                self._hold(key, position)
        change = self.state.changes()
        is_whole = change is not None and all(key in self._fetches for key in change.keys)
        return change if is_whole else None

    def _hold(self, key: int, position: int) -> None:
        state = self.state
        held = HeldPartition(
            state.topics[key >> 32],
            key & 0xFFFFFFFF,
            since=state.assigned[key],
            position=position,
            on_damage=self.settings.on_damage,
        )
        self._fetches[key] = PartitionFetch(
            self._core,
            self._transport,
            held=held,
            share=self._share,
            reset=self.settings.auto_offset_reset,
            on_change=self._changed.set,
        )
        state.hold(held)

    async def settle(self, change: ShareChange) -> None:
        """The program has heard of the change."""
        if change.kind is ShareChangeKind.ASSIGNED:
            for key in change.keys:
                if key in self._fetches:
                    self._fetches[key].held.is_new = False
                    self._fetches[key].start()
            return
        self.transactions.taken(change.places)
        for key in change.keys:
            fetching = self._fetches.pop(key, None)
            if fetching is not None:
                fetching.stop()
        self.state.given_up(change)
        self._heartbeats.hurry()

    def _share(self) -> int:
        share = self.settings.max_bytes // max(1, len(self.state.held))
        return max(LEAST_FETCH, min(MOST_FETCH, share))

    # --- positions

    async def _starts(self, keys: list[int]) -> dict[int, int]:
        """Where to begin in partitions that were given to this consumer: where the group is, or
        else as ``auto_offset_reset`` says."""
        state, run = self.state, self._transport.run
        known = await run(consumer_groups.group(self._core, self.settings.group))
        found: dict[int, int] = {}
        fresh: dict[int, list[int]] = {}
        infos: dict[int, TopicInfo] = {}
        for key in keys:
            info = state.topics.get(key >> 32)
            if info is None:  # another answer came meanwhile
                continue
            infos[info.topic_id] = info
            offset = known.offsets.get(info.name, {}).get(key & 0xFFFFFFFF)
            if offset is None:
                fresh.setdefault(info.topic_id, []).append(key)
            else:
                found[key] = offset
        if fresh and self.settings.auto_offset_reset == "error":
            topic_id, (key, *_) = next(iter(fresh.items()))
            raise OffsetOutOfRange(
                f"group {self.settings.group!r} has committed no offset of "
                f"{infos[topic_id].name!r} partition {key & 0xFFFFFFFF}, and auto_offset_reset is "
                f"'error'"
            )
        latest = self.settings.auto_offset_reset == "latest"
        for topic_id, wanted in fresh.items():
            kind = OffsetKind.END if latest else OffsetKind.BEGIN
            edges = await run(topic_offsets(self._core, infos[topic_id].name, kind))
            found |= {key: edges.get(key & 0xFFFFFFFF, 0) for key in wanted}
        if latest and fresh:
            await self._note_starts({key: found[key] for keys in fresh.values() for key in keys})
        return found

    async def _note_starts(self, starts: dict[int, int]) -> None:
        """A start at the end is committed at once: else a member that takes over would begin at a
        later end, and the records between would be nobody's."""
        await self._transport.run(commit_consumed(self._core, self.state.commit(starts)))

    async def seek(self, topic: str, partition: int, to: int | datetime) -> None:
        """Go on at an offset, or at the first record of that time or later."""
        held = self.state.find(topic, partition)
        if isinstance(to, datetime):
            answer = await self._transport.run(
                offsets_by_time.offsets_at(self._core, {topic: {partition: to}})
            )
            to = answer.offsets[topic][partition]
            if to < 0:
                ends = await self._transport.run(topic_offsets(self._core, topic, OffsetKind.END))
                to = ends[partition]
        if to < 0:
            raise OffsetOutOfRange(f"{topic}/{partition}: an offset is 0 or more, not {to}")
        self._go_to(held, to)

    def _go_to(self, held: HeldPartition, offset: int) -> None:
        held.seek(offset)
        self._fetches[held.key].start()

    def pause(self, partitions: Iterable[tuple[str, int]] | None, paused: bool) -> None:
        """Hand out nothing of these partitions, all by default, or go on."""
        state = self.state
        chosen = state.held.values() if partitions is None else [state.find(*p) for p in partitions]
        for held in chosen:
            held.is_paused = paused
        self._changed.set()

    @property
    def may_deliver(self) -> bool:
        """Whether records may be handed out just now."""
        return self.state.may_deliver(self._now_ms()) and not self.is_closed

    @property
    def member_id(self) -> str:
        """The id of the present membership; empty between two."""
        return "" if self.state.member is None else self.state.member.member_id

    def assignment(self) -> list[TopicPartition]:
        """The partitions of this consumer."""
        return sorted(held.place for held in self.state.held.values() if not held.is_over)

    def positions(self) -> dict[TopicPartition, int]:
        """The offset behind the last record that was handed out, by partition."""
        return {held.place: held.position for held in self.state.held.values() if not held.is_over}

    # --- transactions

    def begin_transaction(self) -> tuple[str, int]:
        """See `ConsumedOffsets.begin`."""
        return self.transactions.begin(by_time=self.settings.commit_s is not None)

    def end_transaction(self, *, committed: bool) -> None:
        """A transaction is over. One that was not committed has processed nothing: the consumer
        goes on behind the last commit."""
        if not self.transactions.is_open:
            return
        self.transactions.end(committed=committed)
        for held in self.state.held.values() if not committed else ():
            if held.position != held.committed and not held.is_over:
                self._go_to(held, held.committed)

    def doubt(self) -> None:
        """It is not known whether a transaction was committed. Another membership begins: by its
        start the group knows, and refuses the commit from then on."""
        self.transactions.end(committed=False)
        self._heartbeats.renew()

    async def lag(self) -> dict[TopicPartition, int]:
        """Records behind the position, by partition, at this moment."""
        held = [one for one in self.state.held.values() if not one.is_over]
        found: dict[TopicPartition, int] = {}
        for name in sorted({one.info.name for one in held}):
            ends = await self._transport.run(topic_offsets(self._core, name, OffsetKind.END))
            for one in held:
                if one.info.name == name:
                    found[one.place] = max(0, ends.get(one.number, 0) - one.position)
        return found

    async def committed(self) -> dict[TopicPartition, int]:
        """The group's committed offsets of this consumer's partitions."""
        known = await self._transport.run(consumer_groups.group(self._core, self.settings.group))
        return {
            held.place: known.offsets[held.info.name][held.number]
            for held in self.state.held.values()
            if held.number in known.offsets.get(held.info.name, {})
        }

    # --- commits

    async def commit(self, offsets: Offsets | None) -> None:
        """Commit the positions, or these offsets.

        Raises:
            ConsumerFenced: a partition is not this consumer's any more; nothing was noted.
        """
        if offsets is None:
            await self._commit_all()
            return
        positions = {self.state.find(*place).key: offset for place, offset in offsets.items()}
        await self._commit(positions)

    async def _commit_all(self) -> None:
        await self._commit(self.state.positions())

    async def _commit(self, positions: dict[int, int]) -> None:
        if positions:
            await self._transport.run(commit_consumed(self._core, self.state.commit(positions)))
            self.state.committed(positions)

    async def _commit_in_time(self) -> None:
        """A commit that the program did not ask for; one that fails is made again later."""
        self._commit_at_ms = self._next_commit_ms()
        try:
            await self._commit_all()
        except (ConsumerFenced, TopicNotFound) as error:
            logger.info("%s", error)
            self._heartbeats.hurry()
        except ConfigError:
            raise
        except DLedgerError as error:
            logger.warning("%s; it is tried again", error)

    def _next_commit_ms(self) -> float | None:
        every_s = self.settings.commit_s
        return None if every_s is None else self._now_ms() + 1000 * every_s
