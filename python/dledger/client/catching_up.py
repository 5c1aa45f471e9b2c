"""How far a member is behind, while a program that changes members waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dledger.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from dledger.client import Client

LOOK_S: Final = 0.2
TELL_S: Final = 5.0
State = dict[str, Any]
"""A node's status."""
Found = Mapping[str, State]
"""By node, what it says of itself."""


Moved = Callable[[int, int], bool]
"""Hears at each look of so many more bytes of about so many in all; True where it shows them, so
that no line has to tell of them."""


def show_nothing(_size: int, _total: int) -> bool:
    """Of a program that shows no bytes."""
    return False


def leader_of(found: Found) -> State | None:
    """What the newest leader says; None where there is none."""
    leaders = [state for state in found.values() if state.get("role") == "LEADER"]
    return max(leaders, key=lambda state: int(state["term"]), default=None)


@dataclass(frozen=True, slots=True)
class Lack:
    """Of one member, against the leader's log."""

    entries: int
    """By what it has acknowledged."""
    bytes: int | None
    """None where it does not answer."""
    taken: int = 0
    """Of the leader's whole state, which it takes over, so many bytes of ``state``."""
    state: int = 0


def lack_of(found: Found, node: str) -> Lack | None:
    """None before a leader knows."""
    leader = leader_of(found) or {}
    mark = leader.get("watermarks", {}).get(node)
    if mark is None:
        return None
    own = found.get(node, {})
    entries = max(0, int(leader["end_index"]) - int(mark))
    size = behind(leader, own)
    state = own.get("install") or {}
    return Lack(entries, size, state.get("bytes", 0), state.get("of", 0))


def behind(leader: Mapping[str, Any], own: Mapping[str, Any]) -> int | None:
    """Bytes of the log that a node lacks, by what both say; None where one of them does not."""
    if "end_pos" not in leader or "end_pos" not in own:
        return None
    return max(0, int(leader["end_pos"]) - int(own["end_pos"]))


class CatchingUp:
    """One member's way to the end of the log: told now and then, and given up when it gets no
    further."""

    def __init__(
        self,
        node: str,
        patience_s: float,
        *,
        tell: Callable[[str], object],
        moved: Moved = show_nothing,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._patience_s = patience_s
        self._now_s = now_s
        self._tell = tell
        self._moved = moved
        self._done = 0
        self._left: tuple[bool, int] | None = None
        """Whether it takes over a whole state, and how many bytes it lacked at least."""
        self._began_s = self._since_s = now_s()
        self._told_s: float | None = None
        self._first: Lack | None = None
        self._best: Lack | None = None

    def look(self, found: Found) -> None:
        """It is so far, and not there yet.

        Raises:
            ConfigError: more is appended than it can take.
            Unavailable: it has got no further for the time of the patience.
        """
        lack, now_s = lack_of(found, self._node), self._now_s()
        standing = (leader_of(found) or {}).get("standings", {}).get(self._node, {})
        if standing.get("too_slow"):
            raise ConfigError(
                f"{self._node} does not catch up: more is appended than it can take. Append less "
                "for a while, give it a faster machine, or raise catch_up_bytes_per_s where that "
                "is set, and say this again"
            )
        if lack is not None and self._is_further(lack):
            self._best, self._since_s = lack, now_s
        if now_s - self._since_s > self._patience_s:
            raise Unavailable(
                f"{self._node} gets no further for {self._patience_s:g} s{_what(lack, standing)}. "
                "Nothing is lost: see its log, and say this again"
            )
        if lack is None:
            return
        is_shown = self._show(lack)
        self._first = self._first or lack
        if is_shown or (self._told_s is not None and now_s - self._told_s < TELL_S):
            return
        if lack.entries or lack.state:
            self._told_s = now_s
            self._tell(f"{self._node} {_words(lack)}{self._rate(lack, now_s)}")

    def _show(self, lack: Lack) -> bool:
        """Whether the bytes that came since the last look are shown."""
        if lack.bytes is None:
            return False
        is_state = lack.state > 0
        left = lack.state - lack.taken if is_state else lack.bytes
        gained = 0
        if self._left is not None and self._left[0] == is_state:
            gained = max(0, self._left[1] - left)
            left = min(left, self._left[1])
        self._left = is_state, left
        self._done += gained
        return self._moved(gained, self._done + left)

    def _is_further(self, lack: Lack) -> bool:
        best = self._best
        return best is None or lack.entries < best.entries or lack.taken > best.taken

    def _rate(self, lack: Lack, now_s: float) -> str:
        """How fast, and how long it takes at this rate; nothing where it gets no nearer."""
        first, took_s = self._first, now_s - self._began_s
        if first is None or took_s <= 0:
            return ""
        if lack.state:
            gained, left = lack.taken - first.taken, lack.state - lack.taken
        else:
            gained, left = (first.bytes or 0) - (lack.bytes or 0), lack.bytes or 0
        if gained <= 0:
            return ""
        rate = gained / took_s
        return f"; {rate / (1 << 20):,.1f} MiB/s, about {left / rate:,.0f} s more"


def _words(lack: Lack) -> str:
    if lack.state:
        return f"takes over the leader's state: {lack.taken:,} of {lack.state:,} bytes"
    size = "" if lack.bytes is None else f", {lack.bytes:,} bytes"
    return f"lacks {lack.entries:,} entries{size}"


def _what(lack: Lack | None, standing: Mapping[str, Any]) -> str:
    if not standing.get("heard"):
        return ": the leader does not hear it"
    return f": it {_words(lack)}" if lack is not None else ""


def looks(client: Client, patience_s: float) -> Iterator[tuple[State, Found]]:
    """What the leader, and all nodes, say of themselves, again and again.

    Raises:
        Unavailable: no node has led for the time of the patience, or none answers.
    """
    since_s = time.monotonic()
    while True:
        found = {str(node): state for node, state in client.status().items()}
        if (leader := leader_of(found)) is not None:
            yield leader, found
            since_s = time.monotonic()
        elif time.monotonic() - since_s > patience_s:
            raise Unavailable(f"no node has led for {patience_s:g} s: see dledger status")
        time.sleep(LOOK_S)


def wait_until_near(
    client: Client,
    node: str,
    patience_s: float,
    tell: Callable[[str], object],
    moved: Moved = show_nothing,
) -> None:
    """Until a learner may be promoted, or the leader has a reason against that of its own."""
    way = CatchingUp(node, patience_s, tell=tell, moved=moved)
    for leader, found in looks(client, patience_s):
        role = leader.get("member_roles", {}).get(node)
        standing = leader.get("standings", {}).get(node)
        if role != "LEARNER" or standing is None or standing["near"]:
            return
        way.look(found)


def wait_until_there(
    client: Client,
    node: str,
    patience_s: float,
    tell: Callable[[str], object],
    moved: Moved = show_nothing,
) -> None:
    """Until a member has what the leader had at first."""
    way, goal = CatchingUp(node, patience_s, tell=tell, moved=moved), None
    for leader, found in looks(client, patience_s):
        if (lack := lack_of(found, node)) is not None:
            goal = leader["end_index"] if goal is None else goal
            standing = leader.get("standings", {}).get(node)
            is_heard = standing is None or standing["heard"]
            if is_heard and leader["end_index"] - lack.entries >= goal:
                return
        way.look(found)
