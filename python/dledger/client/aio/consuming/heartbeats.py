"""The membership of a consumer: joins, heartbeats, and what is given back, in one task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from dledger.client.aio.transport import AsyncTransport
from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.consuming.settings import ConsumerSettings
from dledger.client.protocol.consuming.state import LEASE, ConsumerState
from dledger.client.protocol.operations import topics as names
from dledger.client.protocol.operations.group_membership import (
    MemberId,
    heartbeat,
    join_group,
    leave_group,
    release_partitions,
)
from dledger.errors import (
    AccessDenied,
    ConfigError,
    ConsumerFenced,
    DLedgerError,
    ForkedClient,
    SessionEnded,
    WrongGroup,
)
from dledger.protocol.messages.catalog_commands import JoinGroup

logger = logging.getLogger(__name__)

MOST_MS: Final = 1000
"""Between two heartbeats; a fifth of the session's time-out where that is less."""
BUSY_MS: Final = 100
"""The same while partitions are on their way from one member to another."""
LOOK_MS: Final = 5000
"""Between two looks for topics that a pattern fits."""
FOR_GOOD: Final = (AccessDenied, ConfigError, ForkedClient, WrongGroup)


class Heartbeats:
    """Keeps a consumer's membership up, and its state true to the group's answers.

    Attributes:
        failed: why this consumer is no member and will be none.
    """

    def __init__(
        self,
        core: ClientState,
        transport: AsyncTransport,
        *,
        settings: ConsumerSettings,
        state: ConsumerState,
        on_change: Callable[[], None],
    ) -> None:
        self.failed: Exception | None = None
        self._core = core
        self._run = transport.run
        self._settings = settings
        self._state = state
        self._on_change = on_change
        self._now_ms = core.environment.now_ms
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._former: MemberId | None = None
        """A membership that is to be ended before the next one."""
        self._joining: MemberId | None = None
        """One that was asked for, and not answered."""
        self._topics: tuple[str, ...] = ()
        self._version = 0
        self._looked_ms = 0
        self._polled_ms: int | None = None
        """When the program asked for records last; None while it does."""
        self._is_idle = False

    async def open(self) -> None:
        """Join, and go on from there; raises as `ConsumerEngine.open`."""
        settings = self._settings
        if settings.topics:
            await self._run(names.described(self._core, settings.topics))
        await self._look()
        await self._join()
        self._polled_ms = self._now_ms()
        self._task = asyncio.get_running_loop().create_task(self._main())

    async def close(self) -> None:
        """Leave the group. One that cannot be told hears of it when the session's time is over."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._leave()

    async def _leave(self) -> None:
        members = [one for one in (self._state.member, self._joining, self._former) if one]
        temporarily = bool(self._settings.instance_id) and self.failed is None
        self._state.ended()
        for member in members:
            try:
                await self._run(leave_group(member, temporarily=temporarily))
            except DLedgerError as error:
                logger.warning("%s", error)

    def hurry(self) -> None:
        """There is something to tell the group."""
        self._hurry.set()

    def renew(self) -> None:
        """End this membership and begin another."""
        self._former = self._state.member or self._former
        self._state.ended()
        self.hurry()

    def polling(self) -> None:
        """The program asks for records."""
        self._polled_ms = None
        if self._is_idle:
            self._is_idle = False
            self.hurry()

    def polled(self) -> None:
        """It has them, and works on them."""
        self._polled_ms = self._now_ms()

    # --- the task

    async def _main(self) -> None:
        while True:
            try:
                await self._turn()
            except SessionEnded as error:
                logger.warning("%s; it joins again", error)
                self._state.ended()
                self.hurry()
            except (ConsumerFenced, *FOR_GOOD) as error:
                self.failed = error
                await self._leave()  # who has its place waits for that
                self._on_change()
                return
            except DLedgerError as error:
                logger.info("%s", error)
            except Exception as error:
                logger.exception("the consumer of group %r ends", self._settings.group)
                self.failed = error
                self._on_change()
                return
            self._on_change()
            await self._pause()

    async def _pause(self) -> None:
        every = min(MOST_MS, self._settings.session_timeout_ms / 5)
        if not self._state.is_settled or self._state.releasing:
            every = min(every, BUSY_MS)
        with suppress(TimeoutError):
            async with asyncio.timeout(every / 1000):  # wait_for may lose a cancellation
                await self._hurry.wait()
        self._hurry.clear()

    async def _turn(self) -> None:
        settings, state = self._settings, self._state
        if self._former is not None:
            await self._run(leave_group(self._former))
            self._former = None
        if self._is_stuck():
            logger.warning(
                "the program has not asked for records for %d s (max_poll_interval_ms): this "
                "consumer leaves group %r until it does",
                settings.max_poll_interval_ms // 1000,
                settings.group,
            )
            self._is_idle = True
            self.renew()
            return
        if state.member is None:
            if not self._is_idle:
                await self._look()
                await self._join()
            return
        if settings.pattern and self._now_ms() >= self._looked_ms + LOOK_MS:
            await self._look_again()
        await self._release()
        await self._beat()

    def _is_stuck(self) -> bool:
        since = self._polled_ms
        is_long = since is not None and (
            self._now_ms() - since >= self._settings.max_poll_interval_ms
        )
        return is_long and not self._is_idle

    async def _beat(self) -> None:
        state, settings = self._state, self._settings
        member = state.member
        if member is None:
            return
        sent_ms = self._now_ms()
        answer = await self._run(heartbeat(member, state.known_at, settings.session_timeout_ms))
        if state.member is member:
            state.heard(answer, sent_ms + LEASE * settings.session_timeout_ms)

    async def _release(self) -> None:
        state = self._state
        while state.releasing and (member := state.member) is not None:
            epoch = next(iter(state.releasing.values()))
            keys = {key for key, at in state.releasing.items() if at == epoch}
            await self._run(release_partitions(member, epoch, keys))
            if state.member is member:
                state.released(keys)

    async def _look(self) -> None:
        """Which topics are to be read."""
        settings = self._settings
        found: tuple[str, ...] = settings.topics
        if settings.pattern:
            self._looked_ms = self._now_ms()
            found = settings.matching(
                [one.name for one in await self._run(names.topics(self._core))]
            )
        self._topics = found

    async def _look_again(self) -> None:
        before = self._topics
        await self._look()
        self._topics = self._topics or before
        if self._topics != before and self._state.member is not None:
            await self._run(join_group(self._command(self._state.member)))
            self._state.known_at = -1

    async def _join(self) -> None:
        if not self._topics:  # of a pattern that nothing fits as yet
            return
        unique = self._core.environment.unique
        member = self._joining = self._joining or MemberId(self._settings.group, unique())
        await self._run(join_group(self._command(member)))
        self._joining = None
        self._state.joined(member)
        self.hurry()

    def _command(self, member: MemberId) -> JoinGroup:
        self._version += 1
        return JoinGroup(
            consumer_group=member.group,
            member_id=member.member_id,
            topics=self._topics,
            session_timeout_ms=self._settings.session_timeout_ms,
            instance_id=self._settings.instance_id,
            label=self._core.environment.program(),
            version=self._version,
        )
