"""What a reader looks at between two answers, where its client says in which rack it stands:
whether its replica is behind, and whether a nearer one is there again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dledger.client.protocol.client_state import ClientState, Operation, Request
from dledger.client.protocol.reading.fetching import Fetcher
from dledger.client.protocol.reading.replicas import Replicas, find_racks
from dledger.client.protocol.routing import CallPolicy
from dledger.errors import DLedgerError
from dledger.protocol.messages.client import OffsetKind, OffsetsRequest, TopicInfo

LOOK_MS: Final = 3000
"""How often a reader that follows a replica near it asks the leader where the log ends."""
LAG_MS: Final = 1000
"""A replica that does not have so much later what the leader had is behind."""


@dataclass(slots=True)
class Look:
    """What the leader said."""

    end_offset: int
    at_ms: float


class ReplicaWatch:
    """Between the answers of one reader.

    A read up to an end that the leader has told finds out by itself that a replica is behind: that
    one does not have all. A reader without an end would wait there, at a node that is cut off or
    gets its log only now, and not know. So the leader is asked now and then.
    """

    def __init__(self, core: ClientState, replicas: Replicas, *, fetcher: Fetcher) -> None:
        self._core = core
        self._replicas = replicas
        self._fetcher = fetcher
        self._is_at_end = False
        self._is_behind = False
        self._next_look_ms: float = core.environment.now_ms() + LOOK_MS
        self._look: Look | None = None

    def now_ms(self) -> float:
        """The time of a question, for `took`."""
        return self._core.environment.now_ms()

    def took(self, end_offset: int, asked_ms: float) -> None:
        """A replica answered a question of that time; it ends here."""
        self._is_at_end = self._fetcher.position >= end_offset
        look = self._look
        if look is None or asked_ms < look.at_ms + LAG_MS:
            return  # what the leader had then may be on its way
        self._is_behind = end_offset < look.end_offset
        self._look = None

    def due(self) -> Operation[None] | None:
        """A question to the group that is to be asked now."""
        core = self._core
        if core.racks.is_due(self.now_ms()):
            return find_racks(core)
        topic = self._fetcher.topic
        if topic is None or self._fetcher.end is not None or not self._is_at_end:
            return None
        if self._replicas.address == core.routes.leader or self.now_ms() < self._next_look_ms:
            return None
        return self._ask_leader(topic)

    def _ask_leader(self, info: TopicInfo) -> Operation[None]:
        asked_ms = self.now_ms()
        self._next_look_ms = asked_ms + LOOK_MS
        request = OffsetsRequest(topics=(info.name,), kind=OffsetKind.END)
        terms = CallPolicy(what=f"end offsets of {info.name}")
        try:
            answer, _ = yield Request(request, terms, (), 1000, 1000)
        except DLedgerError:
            return  # nobody leads, or the topic has gone, as the reader will hear
        end = answer.offsets.get(info.name, {}).get(self._fetcher.partition)
        if end is not None and answer.log_ids.get(info.name) == info.log_id:
            self._look = Look(end, self.now_ms())

    def moves(self) -> bool:
        """Whether the next question goes to another replica from now on."""
        if self._is_behind:
            self._is_behind = False
            self._replicas.leave_for(self._core.routes.leader or "")
        elif self._replicas.nearer():
            before = self._replicas.address
            self._replicas.go_back()
            if self._replicas.address == before:
                return False
        else:
            return False
        self._look = None
        return True

    def wants_to_move(self) -> bool:
        """Whether no question is to be sent ahead: the next one may be another replica's."""
        return self._is_behind or self._replicas.nearer()
