"""How far a client has seen each log reach, so that it never shows it shorter afterwards.

A deposed leader, or a node that has not applied everything yet, may answer with an end that lies
before one that this client has shown already. Such an answer is not believed: it is asked again,
elsewhere if need be (a session's reads are monotonic, as Jepsen's checker of logs demands). Pure;
threads may share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import repeat
from operator import lt
from typing import Final

from dledger.forks import fork_lock
from dledger.protocol.messages.client import OffsetsResponse, TopicInfo

LOGS: Final = 4
"""Log ids that are remembered of one topic name, the newest: how often a topic was created again
must not matter."""

Known = dict[str, dict[str, dict[int, int]]]
"""Topic -> log id -> partition -> end offset."""

_lock = fork_lock()  # one for all: a client goes on in a forked child


class SeenEndOffsets:
    """The highest end that was seen, by topic, log id and partition: a topic that is created again
    begins anew."""

    def __init__(self) -> None:
        self._known: Known = {}

    def reached(self, topic: str, log_id: str, partition: int, end: int) -> None:
        """Records below ``end`` were seen, or ``end`` itself was told."""
        self._lift(topic, log_id, {partition: end})

    def has_reached(self, info: TopicInfo, partition: int, end: int) -> bool:
        """Whether the partition was seen to reach ``end``."""
        with _lock:
            ends = self._known.get(info.name, {}).get(info.log_id, {})
            return end <= ends.get(partition, -1)

    def told(self, answer: OffsetsResponse) -> None:
        """A node answered with these end offsets."""
        for topic, offsets in answer.offsets.items():
            self._lift(topic, answer.log_ids.get(topic, ""), offsets)

    def _lift(self, topic: str, log_id: str, found: Mapping[int, int]) -> None:
        with _lock:
            logs = self._known.setdefault(topic, {})
            ends = logs.setdefault(log_id, {})
            known = map(ends.get, found, repeat(0))
            ends.update(zip(found, map(max, found.values(), known), strict=True))
            while len(logs) > LOGS:
                del logs[next(iter(logs))]

    def reading(self, info: TopicInfo, at: int) -> Callable[[int], None]:
        """The callback of a reader of a partition, called with the offset behind its last
        record."""
        return partial(self.reached, info.name, info.log_id, at)

    def of(self, topics: Iterable[str]) -> Known:
        """The end offsets known now. Only those seen before a question began bind its answer."""
        with _lock:
            return {
                topic: {log_id: dict(ends) for log_id, ends in self._known[topic].items()}
                for topic in topics
                if topic in self._known
            }


def behind(answer: OffsetsResponse, known: Known) -> str:
    """Why an answer with end offsets is older than those known when it was asked for; empty when it
    is not."""
    for topic, offsets in answer.offsets.items():
        ends = known.get(topic, {}).get(answer.log_ids.get(topic, ""), {})
        known_ends = map(ends.get, offsets, repeat(0))
        if not any(map(lt, offsets.values(), known_ends)):
            continue
        for at, end in offsets.items():
            if end < ends.get(at, 0):
                return (
                    f"the node ends {topic!r} partition {at} at {end}, and this client has "
                    f"seen {ends[at]}"
                )
    return ""
