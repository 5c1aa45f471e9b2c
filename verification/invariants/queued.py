"""A RocketMQ commit log in a group, seen from outside: Q1 messages are where their puts say, Q2
queue offsets have no gap, Q3 shown messages are committed and no consumer is led past a message, Q4
queues and index agree with the log.

Puts are not idempotent, as in RocketMQ, so no two of them have the same body here: a body is in the
log once at most, whether its put was answered or not, and not at all when the put was refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dledger.node.rocketmq.dispatched import Dispatched
from dledger.protocol.messages.entry import HEADER_SIZE, MAGIC_NORMAL, Entry
from dledger.rocketmq.format.append_hook import read_stored
from dledger.rocketmq.format.message import Message, TransactionType, decode_message
from dledger.rocketmq.format.properties import keys_of, tags_code
from verification.invariants.broken import Broken

Queue = tuple[str, int]
IN_QUEUE = (TransactionType.NONE, TransactionType.COMMIT)
LOOKED_UP = 50
"""Messages of each node that are looked for by their keys at the end: each look goes through all
index files."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A committed message, and the entry that it is the body of."""

    index: int
    message: Message
    size: int

    @property
    def place(self) -> int:
        return self.message.physical_offset

    @property
    def has_unit(self) -> bool:
        return self.message.transaction in IN_QUEUE

    def __str__(self) -> str:
        message = self.message
        return (
            f"message {message.queue_offset} of {message.topic}/{message.queue_id} at {self.place}"
        )


class Queued:
    """The messages of the committed log, and the answers that clients got about them."""

    def __init__(self) -> None:
        self.by_place: dict[int, Stored] = {}
        self.queues: dict[Queue, list[Stored]] = {}
        """By queue offset, from 0 on."""
        self._began = 0
        self._begins: dict[str, Callable[[], int]] = {}
        self._by_body: dict[bytes, Stored] = {}
        self._refused: dict[bytes, str] = {}
        self._index = -1

    # --- the log ----------------------------------------------------------------------------------

    def watch_begin(self, who: str, begin: Callable[[], int]) -> None:
        """``begin``: the first entry of this node's log, from now on."""
        self._began = self.begin
        self._begins[who] = begin

    @property
    def begin(self) -> int:
        """The highest first entry that a node's log has had. Asked anew each time: a message may be
        gone while the retention that takes it is still under way."""
        self._began = max(self._began, *(begin() for begin in self._begins.values()), 0)
        return self._began

    def committed(self, entry: Entry) -> None:
        """A node has applied an entry; the first one says what it is."""
        if entry.index <= self._index:
            return
        self._index = entry.index
        place = entry.pos + HEADER_SIZE
        if entry.magic != MAGIC_NORMAL or read_stored(entry.body, place) is None:
            return
        stored = Stored(entry.index, decode_message(entry.body), len(entry.body))
        before = self._by_body.setdefault(stored.message.body, stored)
        if before is not stored:
            raise Broken("Q1", f"{stored} has the body of {before}: it was put once")
        if stored.message.body in self._refused:
            raise Broken(
                "Q1",
                f"{stored} is committed, and its put was refused: "
                f"{self._refused[stored.message.body]}",
            )
        self.by_place[place] = stored
        if stored.has_unit:
            queue = self.queues.setdefault((stored.message.topic, stored.message.queue_id), [])
            if stored.message.queue_offset != len(queue):
                raise Broken("Q2", f"{stored} follows {len(queue)} messages of its queue")
            queue.append(stored)

    def next_offset(self, queue: Queue) -> int:
        """The queue offset that the queue's next message gets."""
        return len(self.queues.get(queue, ()))

    # --- what clients are told --------------------------------------------------------------------

    def acknowledged(self, body: bytes, place: int, queue_offset: int) -> None:
        """A put was answered with PUT_OK: its message lies there."""
        found = self.by_place.get(place)
        if found is None or found.message.body != body:
            raise Broken(
                "Q1", f"a message is acknowledged at {place}, where {found or 'none'} is committed"
            )
        if found.message.queue_offset != queue_offset:
            raise Broken("Q1", f"{found} is acknowledged with queue offset {queue_offset}")

    def refused(self, bodies: Iterable[bytes], why: str) -> None:
        """A put was answered with an error that says that it was not written."""
        for body in bodies:
            if body in self._by_body:
                raise Broken(
                    "Q1", f"{self._by_body[body]} is committed, and its put was refused: {why}"
                )
            self._refused[body] = why

    def shown(self, messages: Sequence[Message]) -> None:
        """A client was given these messages."""
        for message in messages:
            found = self.by_place.get(message.physical_offset)
            if found is None or found.message != message:
                other = f"{found} is committed" if found is not None else "none is committed"
                raise Broken(
                    "Q3",
                    f"a client is shown {message.body!r} at {message.physical_offset}, where "
                    f"{other}",
                )

    def led(self, queue: Queue, at: int, following: int, messages: Sequence[Message]) -> None:
        """A client that asked from queue offset ``at`` on goes on at ``following`` with these
        messages between: at least one node has deleted the messages that it has not seen."""
        got = [message.queue_offset for message in messages]
        if got != sorted(set(got)) or any(not at <= one < following for one in got):
            raise Broken(
                "Q3", f"a get of {queue} from {at} on, up to {following}, has the messages {got}"
            )
        for offset in range(max(at, 0), min(following, self.next_offset(queue))):
            stored = self.queues[queue][offset]
            if offset not in got and stored.index >= self.begin:
                raise Broken(
                    "Q3",
                    f"a get of {queue} from {at} on leads to {following}, past {stored}, which is "
                    f"kept",
                )

    def reaches(self, queue: Queue, end: int, known: int) -> None:
        """A linearizable get says that the queue ends there; ``known``: its next offset when it was
        asked."""
        if end < known:
            raise Broken(
                "Q3", f"a get says that {queue} ends at {end}, it had {known} messages before"
            )

    def missing(self, place: int) -> None:
        """A linearizable question for a place is answered with: no message that is kept begins
        there."""
        found = self.by_place.get(place)
        if found is not None and found.index >= self.begin:
            raise Broken("Q3", f"{found} is said not to be there, and is kept")

    # --- files ------------------------------------------------------------------------------------

    def opened(self, who: str, files: Dispatched) -> None:
        """Q3, Q4: all units that a node has found in its queues at a start are of committed
        messages."""
        for (topic, queue_id), queue in files.queues.items():
            end = queue.max_offset
            units = queue.units(queue.min_offset, end) if end > queue.min_offset else []
            for offset, unit in enumerate(units, queue.min_offset):
                known = self.queues.get((topic, queue_id), ())
                stored = known[offset] if offset < len(known) else None
                if stored is None or (unit.physical_offset, unit.size) != (
                    stored.place,
                    stored.size,
                ):
                    raise Broken(
                        "Q4",
                        f"{who} starts with {unit} at {offset} of {topic}/{queue_id}: {stored}",
                    )

    def whole(self, who: str, files: Dispatched, begin: int) -> None:
        """Q4: everything is dispatched, and the node's log begins at entry ``begin``."""
        self.opened(who, files)
        for queue, stored in self.queues.items():
            kept = [one for one in stored if one.index >= begin]
            found = files.queues.get(*queue)
            first = kept[0].message.queue_offset if kept else len(stored)
            if not kept and (found is None or found.is_empty):
                continue
            if found is None or found.min_offset > first or found.max_offset != len(stored):
                ends = None if found is None else (found.min_offset, found.max_offset)
                raise Broken(
                    "Q4", f"{who} has {ends} of {queue}, the log has {first} to {len(stored)}"
                )
            codes = [unit.tags_code for unit in found.units(first, len(kept))] if kept else []
            if codes != [tags_code(one.message.property_map().get("TAGS")) for one in kept]:
                raise Broken("Q4", f"{who} has other tags in {queue} than the log")
        keyed = [
            one
            for one in self.by_place.values()
            if one.index >= begin and one.message.transaction is not TransactionType.ROLLBACK
        ]
        for one in keyed[:: 1 + len(keyed) // LOOKED_UP]:
            for key in keys_of(one.message.property_map()):
                if files.index.lookup(one.message.topic, key).count(one.place) != 1:
                    raise Broken("Q4", f"{who} does not find {one} once by its key {key!r}")
