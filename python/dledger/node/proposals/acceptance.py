"""Which requests a leader's core takes now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from dledger.node.context import CurrentSettings
from dledger.node.loop.ready_loop import ReadyLoop
from dledger.protocol.messages.codes import Code


class Sized(Protocol):
    """A request that waits, and how many bytes it would put into the log."""

    size: int


S = TypeVar("S", bound=Sized)


class Acceptance:
    """Of requests that wait for a place in the log, those that the core takes."""

    def __init__(self, ready_loop: ReadyLoop, settings: CurrentSettings) -> None:
        """Of the settings, ``pending_bytes`` of the log may be without a quorum."""
        self._ready_loop = ready_loop
        self._settings = settings

    def __call__(
        self, gathered: list[S], answer: Callable[[S, Code], object], *, is_ready: bool = True
    ) -> list[S]:
        """Those that are taken now; the others are answered: all of them unless ``is_ready``."""
        leader, pending = self._ready_loop.raft.leader, 0
        most = self._settings.group.pending_bytes
        if self._ready_loop.failed:
            code = Code.DISK_ERROR
        elif leader is None:
            code = Code.NOT_LEADER
        else:
            code, pending = leader.can_accept(0), leader.acks.pending_bytes
            if code is Code.SUCCESS and not is_ready:
                code = Code.LEADER_NOT_READY
        accepted: list[S] = []
        for one in gathered:
            if code is not Code.SUCCESS:
                answer(one, code)
            elif pending and pending + one.size > most:
                answer(one, Code.LEADER_PENDING_FULL)
            else:
                pending += one.size
                accepted.append(one)
        return accepted
