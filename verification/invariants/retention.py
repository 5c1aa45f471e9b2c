"""I15: the entries that may go from the front of a log, and the time when they may.

Retention takes no entry that its node may still replay or that an open transaction needs, no file
before its time, and none that a consumer group holds back or another member has not got before the
settings let it: after so long, over so many bytes, or on a disk that gets full. Followers take the
entries that a leader took.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from verification.invariants.broken import Broken
from verification.invariants.view import Memory, WatchedNode


class Retention:
    """Follows the front of every log."""

    def __init__(self) -> None:
        self.clocks_are_right = True
        """Wall clocks neither jump nor drift: files have the age that they seem to have."""
        self._released = 0
        """The highest beginning of a log that some leader was right to make."""
        self._last: list[int] = []
        self._written_ms: list[int] = []
        """When an entry as high as ``_last`` was written first, by any node."""

    def written(self, last: int, now_ms: int) -> None:
        """A node has entries up to this one."""
        if not self._last or last > self._last[-1]:
            self._last.append(last)
            self._written_ms.append(now_ms)

    def retained(
        self,
        view: WatchedNode,
        begin: int,
        views: Mapping[str, WatchedNode],
        memories: Mapping[str, Memory],
        now_ms: int,
        *,
        is_tight: bool,
    ) -> None:
        """The entries before ``begin`` have gone. ``is_tight``: the disk was at disk_warn_ratio
        then."""
        last, catalog, node = begin - 1, view.catalog, view.server.node
        saved = view.server.checkpoints.oldest_index
        if last > min(saved, view.log.committed_index):
            raise Broken(
                "I15", f"{view} lets entries up to {last} go, its catalog is saved as of {saved}"
            )
        if begin > catalog.retention_floor():
            raise Broken(
                "I15",
                f"{view} lets entries up to {last} go, {catalog.retention_floor()} is still needed",
            )
        if begin <= self._released:
            return
        age_ms = now_ms - self.first_written_ms(last, now_ms)
        file = view.server.group.segment_bytes
        # with the last one that went
        size = file - (view.store.begin.end_pos - view.store.end.end_pos) // file * file

        def may_go(max_ms: int, max_bytes: int) -> bool:
            is_old = not self.clocks_are_right or age_ms >= max_ms
            return is_old or 0 < max_bytes < size

        if not may_go(node.retention_ms or 1 << 60, node.retention_bytes):
            raise Broken(
                "I15", f"{view} lets entries up to {last} go before their time, after {age_ms} ms"
            )
        most_bytes = node.member_retention_bytes or node.retention_bytes
        waited = is_tight or may_go(node.retention_ms + node.member_retention_ms, most_bytes)
        for name in (view.name, *view.machine.peers):  # one that was removed is not waited for
            memory = memories[name]
            other = views.get(name)
            has = memory.durable if other is None else other.synced()
            if has < last and not memory.others and not waited:
                raise Broken(
                    "I15", f"{view} lets entries up to {last} go, {name} has none behind {has}"
                )
        held_from, hold_ms = view.held_from, node.retention_ms + node.hold_retention_ms
        if (
            held_from is not None
            and held_from < begin
            and not (is_tight or may_go(hold_ms, node.hold_retention_bytes))
        ):
            raise Broken(
                "I15",
                f"{view} lets entries up to {last} go, a group holds back all from {held_from} on",
            )
        self._released = begin

    def first_written_ms(self, index: int, now_ms: int) -> int:
        """When an entry was written first, by any node; now if that is not known."""
        at = bisect_left(self._last, index)
        return self._written_ms[at] if at < len(self._last) else now_ms


def is_tight(view: WatchedNode) -> bool:
    """Whether the node's disk is at disk_warn_ratio or above, as far as one can tell without asking
    it."""
    disk, node = view.server._disk, view.server.node
    free, total = getattr(disk, "free", 1), getattr(disk, "total", 1)
    has_room = not getattr(view.store, "_no_room", False)
    return not (
        has_room and free >= node.disk_reserve_bytes and 1 - free / total < node.disk_warn_ratio
    )
