"""The promise of a store to its node: the state that the node has a right to find again. Checks
that a store keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.errors import CorruptEntry
from dledger.protocol.messages.entry import MAGIC_NORMAL, Entry
from dledger.protocol.messages.membership import Membership
from dledger.protocol.wire import decode_command
from dledger.records.body.header import BODY_HEADER_SIZE, BodyKind, decode_header
from dledger.storage.api import Identity, LogStore
from dledger.types import NO_INDEX, NO_TERM, Index, NodeId, Term

Vote = tuple[Term, NodeId | None]
NOT_YET: Vote = (NO_TERM, None)


class BrokenPromise(Exception):
    """The store lost, invented or forgot something."""


class NotStarted(BrokenPromise):
    """It did not start and go on by itself."""


@dataclass(frozen=True, slots=True)
class Promise:
    """The state that must be found after a crash at one moment. Where a call is under way, both
    outcomes are right."""

    logs: tuple[tuple[Entry, ...], ...] = ((),)
    """Whole logs from entry 0 on: the log that is found is a prefix of one of them."""
    durable: Index = NO_INDEX
    """The last entry that was reported as durable."""
    votes: tuple[Vote, ...] = (NOT_YET,)
    """Term and vote; more than one while a save is under way."""
    commit: Index = NO_INDEX
    """The commit mark in the last hard state that was saved."""
    begins: tuple[Index, ...] = (Index(0),)
    """First entries that may be kept; more than one while retention is under way."""
    checkpoint: Index = NO_INDEX
    """The entry that the newest saved catalog speaks of."""
    catalog: bool = False
    """This node keeps a catalog."""
    damaged: frozenset[Index] = frozenset()
    """Entries that rotted and are not repaired yet."""
    identity: Identity | None = None
    origin: tuple[Entry, ...] = ()
    """The log, from entry 0 on, that the catalog taken over last sums up; the log of the store may
    end before it."""
    memberships: tuple[Membership, ...] = ()
    """The membership; more than one while a save is under way, and none before the first one."""
    versions: tuple[int, ...] = (0,)
    """The group's version; more than one while a save is under way."""
    other: Promise | None = None
    """A state that is being taken over: the state that is found is the whole of it, or the whole of
    this one."""

    def digest(self) -> int:
        """64 bits that tell it from others."""
        found = blake2b(digest_size=8)
        for log in (*self.logs, self.origin):
            found.update(b"".join(bytes(entry.header) for entry in log) + b"|")
        rest = (
            self.durable,
            self.votes,
            self.commit,
            self.begins,
            self.checkpoint,
            self.catalog,
            sorted(self.damaged),
            self.memberships,
            self.versions,
        )
        found.update(repr((rest, self.other and self.other.digest())).encode())
        return int.from_bytes(found.digest(), "big")

    def found_at(self, begin: Index) -> Promise:
        """Of the two states that may be there the one whose log begins at this entry."""
        other = self.other
        return other if other is not None and begin in other.begins else replace(self, other=None)


def entry_bytes(entry: Entry) -> bytes:
    """The entry as it stands in the file."""
    return bytes(entry.header) + bytes(entry.body)


def damaged_runs(promise: Promise) -> list[list[Entry]]:
    """The entries that are damaged, those side by side together, as they were written."""
    runs: list[list[Entry]] = []
    for index in sorted(promise.damaged):
        if not runs or runs[-1][-1].index != index - 1:
            runs.append([])
        runs[-1].append(promise.logs[0][index])
    return runs


def require(fine: bool, text: str) -> None:
    """Raises BrokenPromise unless ``fine``."""
    if not fine:
        raise BrokenPromise(text)


def require_entry(store: LogStore, entry: Entry, text: str) -> None:
    """Raises BrokenPromise where the store serves another entry in its place."""
    require(entry_bytes(store.read(entry.index, 1)[0]) == entry_bytes(entry), text)


def read_log(store: LogStore, promise: Promise) -> list[Entry | None]:
    """All that the store serves, None for each damaged entry that may be damaged.

    Raises:
        BrokenPromise: another entry than those cannot be read.
    """
    entries: list[Entry | None] = []
    begin = store.begin_index
    while begin <= store.end.position.index:
        try:
            part = store.read(begin, 2000)
        except CorruptEntry as error:
            require(begin in promise.damaged, f"entry {begin} cannot be read: {error}")
            entries.append(None)
            begin = Index(begin + 1)
            continue
        if not part or part[0].index != begin:
            raise BrokenPromise(f"a read at entry {begin} gives {part[:1]}")
        entries += part
        begin = Index(part[-1].index + 1)
    return entries


def check_log(store: LogStore, promise: Promise, started: bool = True) -> tuple[Entry, ...]:
    """The log from entry 0 on, as the promise and the store agree on it; ``started``: just now, so
    its report counts.

    Raises:
        BrokenPromise: an entry is lost, invented or damaged.
    """
    begin, end = store.begin_index, store.end.position.index
    require(
        begin in promise.begins, f"the log begins at entry {begin}, not at one of {promise.begins}"
    )
    require(
        end >= promise.durable,
        f"entry {promise.durable} was durable, but the log ends at entry {end}",
    )
    require(
        store.durable.index == end,
        f"started with entry {end}, of which only {store.durable.index} is durable",
    )
    if started:
        faulty = {
            index for fault in store.recovery.faulty for index in range(fault.first, fault.last + 1)
        }
        require(
            faulty <= promise.damaged, f"sound entries are called damaged: {store.recovery.faulty}"
        )
    found = read_log(store, promise)
    for log in promise.logs:
        due = log[begin : end + 1]
        if len(due) == len(found) and all(
            entry is None or entry_bytes(entry) == entry_bytes(other)
            for entry, other in zip(found, due, strict=True)
        ):
            _check_around(store, log[: end + 1], promise)
            return log[: end + 1]
    raise BrokenPromise(
        f"entries {begin} to {end} are no prefix of what was written: "
        f"{[str(entry) for entry in found]}; "
        f"expected one of {[[str(entry) for entry in log[begin:]] for log in promise.logs]}"
    )


def _check_around(store: LogStore, log: tuple[Entry, ...], promise: Promise) -> None:
    """Check other answers of the store about its log: the terms, and bodies by their place."""
    begin = store.begin_index
    terms: list[tuple[Term, Index]] = []
    for entry in log[begin:]:
        if not terms or terms[-1][0] != entry.term:
            terms.append((entry.term, entry.index))
    if not promise.damaged:  # a damaged header may have been the first one of its term
        require(store.terms == tuple(terms), f"terms {store.terms} where the log has {terms}")
    sound = [entry for entry in log[begin:] if entry.index not in promise.damaged]
    bodies = store.read_bodies([(entry.index, entry.pos, entry.size) for entry in sound])
    require(
        [bytes(body) for body in bodies] == [bytes(entry.body) for entry in sound], "bodies differ"
    )


def check_state(store: LogStore, promise: Promise) -> None:
    """Check the hard state and the identity.

    Raises:
        BrokenPromise: a term, a vote, the commit mark or the identity was lost.
    """
    state = store.hard_state
    vote = (state.term, state.voted_for)
    require(vote in promise.votes, f"the hard state says {vote}, but {promise.votes} was saved")
    require(
        state.commit_hint >= promise.commit,
        f"commit mark {state.commit_hint}, but {promise.commit} was saved",
    )
    if promise.identity is not None:
        require(
            store.identity == promise.identity,
            f"it is {store.identity} now, not {promise.identity}",
        )


def apply_entries(catalog: Catalog, entries: Sequence[Entry]) -> None:
    """Carry out committed entries, as a node does."""
    for entry in entries:
        header = None
        if entry.magic == MAGIC_NORMAL:
            try:
                header = decode_header(entry.body)
            except ValueError:
                header = None
        if header is None:
            catalog.apply_other(entry.index)
        elif header.kind is BodyKind.DATA:
            catalog.apply_data(entry.index, entry.pos, len(entry.body), header, entry.body_crc)
        else:
            catalog.apply_command(entry.index, decode_command(entry.body[BODY_HEADER_SIZE:]))


def in_common(log: Sequence[Entry], origin: Sequence[Entry]) -> int:
    """How many entries both begin with."""
    count = 0
    for mine, other in zip(log, origin, strict=False):
        if bytes(mine.header) != bytes(other.header):
            break
        count += 1
    return count


def check_catalog(catalog: Catalog, log: tuple[Entry, ...], promise: Promise, begin: Index) -> None:
    """A restored catalog is the one that the log makes, row by row, and goes on like it.

    Raises:
        BrokenPromise: it is not.
    """
    if in_common(log, promise.origin) < len(promise.origin):
        log = promise.origin  # the log has yet to come up to what was taken over
    at = catalog.applied_index
    require(
        at >= promise.checkpoint,
        f"the catalog of entry {promise.checkpoint} was saved, that of {at} came back",
    )
    require(at < len(log), f"a catalog of entry {at} over a log that ends at {len(log) - 1}")
    require(at >= begin - 1, f"a catalog of entry {at} over a log that begins at {begin}")
    expected = Catalog(MemoryTables())
    apply_entries(expected, log[: at + 1])
    for stop in (at, len(log) - 1):
        apply_entries(expected, log[expected.applied_index + 1 : stop + 1])
        apply_entries(catalog, log[catalog.applied_index + 1 : stop + 1])
        require(
            catalog.snapshot() == expected.snapshot(),
            f"the catalog as of entry {stop} is another one",
        )
        for key, part in expected.partitions.items():
            mine = catalog.partitions[key]
            low, high = mine.begin_row, mine.rows
            require(
                high == low
                or bytes(mine.table.read(low, high)) == bytes(part.table.read(low, high)),
                f"rows {low} to {high} of {mine.name} differ as of entry {stop}",
            )
