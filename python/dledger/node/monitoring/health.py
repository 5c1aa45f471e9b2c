"""Whether a node lives, and whether it is ready: the reason where it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dledger.node.parts import NodeParts

STALLED_S: Final = 5.0
"""A loop that has not run for so long answers nobody in time."""
DEAD_S: Final = 60.0
"""A loop that has not run for so long is taken for hung: whoever watches over the process may end
it."""


@dataclass(slots=True)
class Health:
    """What is known about a node at any time of its life. Changed on the node's loop, read on
    another thread."""

    phase: str = "it is starting"
    """Why no part of it works, where ``parts`` is None."""
    parts: NodeParts | None = None
    beat_s: float = 0.0
    """When its loop ran last, by `Environment.now_s`."""
    has_caught_up: bool = False
    """All entries were applied that it knew to be committed, once since its start."""

    def silent_s(self, now_s: float) -> float:
        """How long the node's loop has not run; 0 while it is started, when it may take long."""
        return 0.0 if self.parts is None else max(0.0, now_s - self.beat_s)

    def dead(self, now_s: float) -> str:
        """Why the process is of no use any more; empty while it is."""
        parts = self.parts
        if parts is not None and parts.ready_loop.failed:
            return "it has failed; its log says why"
        silent_s = self.silent_s(now_s)
        return f"its loop has not run for {silent_s:.0f} s" if silent_s > DEAD_S else ""

    def unready(self, now_s: float) -> str:
        """Why it cannot do all that a member does; empty when it can."""
        parts = self.parts
        if parts is None:
            return self.phase
        context, raft = parts.context, parts.context.raft
        silent_s = self.silent_s(now_s)
        if dead := self.dead(now_s):
            return dead
        if silent_s > STALLED_S:
            return f"its loop has not run for {silent_s:.0f} s"
        if context.catalog_lost:
            return "its catalog is lost and is being fetched from the leader"
        if not context.is_admitted:
            return (
                f"it lost its disk, or has an older copy of it, and is not admitted: "
                f"dledger admit {context.node_id}"
            )
        if raft.not_heard_yet:
            names = ", ".join(raft.not_heard_yet)
            return f"its group is not founded yet, as far as it knows: it has not heard of {names}"
        if raft.leader_id is None:
            return f"no leader is known; does a majority of {', '.join(context.members.ids)} run?"
        behind = raft.committed_index - context.catalog.applied_index
        if behind > 0 and not self.has_caught_up:
            return f"{behind} committed entries are to be applied yet"
        self.has_caught_up = True
        return ""
