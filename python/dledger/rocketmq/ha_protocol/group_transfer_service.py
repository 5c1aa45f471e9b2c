"""GroupTransferService: puts on a sync master that wait until a slave has them.

One acknowledgement is enough, of any slave; how far acknowledgements reach only ever grows. A
message whose put ends with one of the slave's statuses is stored all the same.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from dledger.rocketmq.ha_protocol.messages import DEFAULTS, HASettings


class BrokerRole(Enum):
    """The role of a broker towards slaves."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    """Puts wait for a slave, unless the message says WAIT=false."""


class HAStatus(Enum):
    """How a put ends as far as slaves go; the names of PutMessageStatus, the codes of a send's
    response."""

    PUT_OK = 0
    SLAVE_NOT_AVAILABLE = 11
    """No slave is connected, or all are too far behind; the put did not wait."""
    FLUSH_SLAVE_TIMEOUT = 12
    """No slave acknowledged in time; one may still do."""


@dataclass(slots=True, eq=False)
class GroupCommitRequest:
    """A put that waits."""

    next_offset: int
    """Behind the message's last byte."""
    deadline: int
    status: HAStatus | None = None
    """None while it waits."""


class GroupTransferService:
    """The puts that wait for slaves; each call returns the requests that it has decided."""

    def __init__(self, role: BrokerRole, settings: HASettings = DEFAULTS) -> None:
        self.push2_slave_max_offset = 0
        """Up to here some slave has acknowledged."""
        self._role = role
        self._settings = settings
        self._by_offset: list[tuple[int, int, GroupCommitRequest]] = []
        self._by_deadline: deque[GroupCommitRequest] = deque()
        self._count = 0

    def __len__(self) -> int:
        return sum(request.status is None for request in self._by_deadline)

    def is_slave_ok(self, master_put_where: int, slave_offsets: Iterable[int]) -> bool:
        """Whether waiting makes sense: a slave is connected, and one is less behind than the limit.

        Args:
            master_put_where: where the master's log ends.
            slave_offsets: the last report of each connected slave, below 0 where there is none yet.
        """
        offsets = list(slave_offsets)
        nearest = max(self.push2_slave_max_offset, *offsets, 0) if offsets else 0
        return bool(offsets) and master_put_where - nearest < self._settings.ha_slave_fallbehind_max

    def put_request(
        self,
        next_offset: int,
        slave_offsets: Iterable[int],
        now: int,
        *,
        wait_store_msg_ok: bool = True,
    ) -> GroupCommitRequest:
        """A message was put that ends at ``next_offset``; its request is decided already where it
        must not wait.

        Args:
            now: milliseconds.
            wait_store_msg_ok: the message's property WAIT.
        """
        request = GroupCommitRequest(next_offset, now + self._settings.slave_timeout)
        if self._role is not BrokerRole.SYNC_MASTER or not wait_store_msg_ok:
            request.status = HAStatus.PUT_OK
        elif not self.is_slave_ok(next_offset, slave_offsets):
            request.status = HAStatus.SLAVE_NOT_AVAILABLE
        elif next_offset <= self.push2_slave_max_offset:
            request.status = HAStatus.PUT_OK
        else:
            self._count += 1
            heapq.heappush(self._by_offset, (next_offset, self._count, request))
            self._by_deadline.append(request)
        return request

    def notify_transfer_some(self, offset: int, begin: int = 0) -> list[GroupCommitRequest]:
        """A slave has acknowledged up to there; the requests that this decides, by their offsets.

        Args:
            begin: the begin of the bytes sent to it (`WriteSocketService.begin`). A message that
            ends
                there or before is not known to be on that slave: one without a log never gets it.
        """
        self.push2_slave_max_offset = max(self.push2_slave_max_offset, offset)
        done: list[GroupCommitRequest] = []
        others: list[tuple[int, int, GroupCommitRequest]] = []
        while self._by_offset and self._by_offset[0][0] <= offset:
            item = heapq.heappop(self._by_offset)
            request = item[2]
            if request.status is not None:
                continue
            if item[0] <= begin:
                others.append(item)
                continue
            request.status = HAStatus.PUT_OK
            done.append(request)
        for item in others:
            heapq.heappush(self._by_offset, item)
        self._forget()
        return done

    def expire(self, now: int) -> list[GroupCommitRequest]:
        """The requests whose time is over."""
        late: list[GroupCommitRequest] = []
        while self._by_deadline and (
            self._by_deadline[0].deadline <= now or self._by_deadline[0].status is not None
        ):
            request = self._by_deadline.popleft()
            if request.status is None:
                request.status = HAStatus.FLUSH_SLAVE_TIMEOUT
                late.append(request)
        self._forget()
        return late

    def deadline(self) -> int | None:
        """When the next request's time is over (milliseconds)."""
        self._forget()
        return self._by_deadline[0].deadline if self._by_deadline else None

    def _forget(self) -> None:
        """Decided requests at the head of either queue go; all requests wait equally long, so none
        is kept for longer than that."""
        while self._by_deadline and self._by_deadline[0].status is not None:
            self._by_deadline.popleft()
        while self._by_offset and self._by_offset[0][2].status is not None:
            heapq.heappop(self._by_offset)
