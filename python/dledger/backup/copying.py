"""Making a backup."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from dledger.backup.chunks import (
    CHUNK_BYTES,
    Cutter,
    check_following,
    chunk_path,
    digest,
    pack_entries,
)
from dledger.backup.manifest import LogChunk, Manifest, PlainChunk, RowsChunk
from dledger.backup.repository import SIGN_S, Repository, Sign, of_group
from dledger.backup.view import NodeView, open_node
from dledger.catalog.topics.batch_rows import ROW_SIZE
from dledger.client import Client
from dledger.errors import (
    CorruptEntry,
    DLedgerError,
    OffsetOutOfRange,
    Unavailable,
    WrongGroup,
)
from dledger.protocol.messages.entry import LogEnd
from dledger.protocol.messages.entry_runs import Entries
from dledger.release import RELEASE
from dledger.types import Index

WRITERS: Final = 3
"""Threads that hash and write chunks while the next ones are read."""
MOST_SMALL: Final = 64
"""So many chunks that are not full are copied again into full ones."""
TRIES: Final = 5
"""Views, one after the other, where nodes end, or a topic is deleted, on the way."""

Rows = tuple[str, int, int]
"""Rows of a table: its name, the first one, and the one behind the last."""
PIECE_ROWS: Final = CHUNK_BYTES // ROW_SIZE + 1

CREDIT_S: Final = 1.0
"""Time that something else took is made up for, up to so much."""

OnBytes = Callable[[int, int], None]
"""Told of each piece: its bytes, and how many there are about to be in all."""


@dataclass(slots=True)
class ReadRate:
    """Keeps reading to a rate, in bytes a second; 0: as fast as can be."""

    rate: int = 0
    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _free_s: float = 0.0
    """When what was read so far is paid for."""

    def spend(self, size: int) -> None:
        """So much was read: waits."""
        if not self.rate:
            return
        now_s = self.now_s()
        self._free_s = max(self._free_s, now_s - CREDIT_S) + size / self.rate
        if self._free_s > now_s:
            self.sleep(self._free_s - now_s)


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup did."""

    manifest: Manifest
    node: str
    read: int
    """Bytes that came from the node."""
    written: int
    """Bytes of chunks that were not there yet."""
    dropped: int
    note: str = ""
    """Why old backups were not dropped, or what is wrong with others."""


@dataclass(slots=True)
class BackupJob:
    """One `dledger backup`.

    Raises:
        ConfigError: the place has another group's backups.
        PathError: the place fails; what is there by then is not copied again.
        Unavailable: nodes do not answer.
    """

    client: Client
    repository: Repository
    node: str = ""
    keep: int = 0
    """So many backups stay, the new one among them; 0: all."""
    pace: ReadRate = field(default_factory=ReadRate)
    on_bytes: OnBytes = lambda done, total: None

    def run(self) -> BackupReport:
        """Copy what is new, and say what there is in a manifest."""
        own = self.repository.begin(self.client.lineage().group_id)
        try:
            for left in reversed(range(TRIES)):
                try:
                    return self._copy(own)
                except (Unavailable, OffsetOutOfRange, CorruptEntry) as error:
                    # another node may have it; what is copied is not copied again
                    if not left or (self.node and isinstance(error, Unavailable)):
                        raise
                    self.repository.sleep(0.2)
            raise AssertionError("unreachable")
        except DLedgerError:
            with suppress(DLedgerError):  # the first error is to be told
                self.repository.give_up(own)
            raise

    def _copy(self, own: Sign) -> BackupReport:
        repository = self.repository
        sound, wrong = repository.manifests()
        with open_node(self.client, self.node) as view, _writers() as writers:
            of_group(sound, view.about.group_id, repository.target.url)
            own.group_id = view.about.group_id
            copied = _Copying(self, own, view=view, writer=ChunkWriter(repository, writers))
            manifest = copied.manifest(sound)
            node, writer = view.node, copied.writer
        repository.add(manifest)
        dropped, note = repository.drop(own, self.keep) if self.keep else (0, "")
        repository.end(own)
        repository.tidy()
        note = note or (wrong[0] if wrong else "")
        return BackupReport(manifest, node, copied.read, writer.written, dropped, note)


@contextmanager
def _writers() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(WRITERS, "dledger-backup")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


class ChunkWriter:
    """Puts chunks that are not there yet where backups lie, a few at a time."""

    def __init__(self, repository: Repository, pool: ThreadPoolExecutor) -> None:
        self._target = repository.target
        self._there = repository.chunks()
        self._pool = pool
        self._waiting: deque[Future[PlainChunk]] = deque()
        self._new: dict[str, int] = {}
        """Chunks that were written, with their bytes."""

    @property
    def written(self) -> int:
        """Bytes of chunks that were not there yet."""
        return sum(self._new.values())

    def is_there(self, chunk: LogChunk | RowsChunk) -> bool:
        return self._there.get(chunk.name) == chunk.size

    def put(self, make: Callable[[], bytes]) -> Future[PlainChunk]:
        """Write the bytes that ``make`` gives; waits while too many chunks do.

        Raises:
            PathError: an earlier one could not be written.
        """
        while len(self._waiting) >= WRITERS + 1:
            self._waiting.popleft().result()
        future = self._pool.submit(self._put, make)
        self._waiting.append(future)
        return future

    def _put(self, make: Callable[[], bytes]) -> PlainChunk:
        data = make()
        name = digest(data)
        if self._there.get(name) != len(data):
            self._target.write(chunk_path(name), data)
            self._there[name] = self._new[name] = len(data)
        return PlainChunk(name, len(data))


class _Copying:
    """The copying of one view."""

    def __init__(self, job: BackupJob, own: Sign, *, view: NodeView, writer: ChunkWriter) -> None:
        self._job, self._own, self._view = job, own, view
        self.writer = writer
        self.read = 0
        self._total = 0
        self._said_s = job.repository.now_s()

    def manifest(self, before: list[Manifest]) -> Manifest:
        """Copy what no chunk has yet."""
        about = self._view.about
        known = [manifest.log for manifest in before]
        known += [
            tuple(s.log) for s in self._job.repository.signs() if s.group_id == about.group_id
        ]
        head, front = self._view.head()
        log = self._log(self._reusable(known))
        rows = self._rows(front, head.tables, before[-1].rows if before else ())
        return Manifest(
            group=about.group,
            group_id=about.group_id,
            ancestors=about.ancestors,
            members=about.members,
            segment_bytes=about.segment_bytes,
            index_file_bytes=about.index_file_bytes,
            release=RELEASE,
            time_ms=about.time_ms,
            index=about.index,
            term=about.term,
            begin=self._view.begin,
            log=log,
            front=self._front(front),
            rows=rows,
        )

    def _took(self, size: int) -> None:
        """So many bytes came from the node."""
        self.read += size
        self._job.pace.spend(size)
        self._job.on_bytes(size, max(self._total, self.read))
        if self._job.repository.now_s() - self._said_s >= SIGN_S:
            self._said_s = self._job.repository.now_s()
            self._job.repository.say(self._own)

    # --- the log ----------------------------------------------------------------------------------

    def _reusable(self, known: list[tuple[LogChunk, ...]]) -> tuple[LogChunk, ...]:
        """The chunks of an earlier backup that are the beginning of the log here."""
        best = max(
            map(self._beginning, known), key=lambda log: log[-1].last if log else -1, default=()
        )
        if not best:
            return ()
        last = best[-1]
        (entry,) = self._view.entries(Index(last.last), 1)
        if LogEnd.after(entry) != last.end:
            raise WrongGroup(
                f"entry {last.last} of {self._view.node} is not the one of the backups at "
                f"{self._job.repository.target.url}: the group has lost what these have. Name "
                "another place for its backups, and restore one of these to see what was lost"
            )
        small = 0
        while small < len(best) and best[-1 - small].size < CHUNK_BYTES:
            small += 1
        return best if small <= MOST_SMALL else best[:-small]

    def _beginning(self, log: tuple[LogChunk, ...]) -> tuple[LogChunk, ...]:
        """Those that are there, from the log's first entry on, up to the first one that is not."""
        about = self._view.about
        found: list[LogChunk] = []
        due = about.begin_index
        for chunk in log:
            if chunk.last < due:
                continue
            if chunk.first > due or chunk.last > about.index or not self.writer.is_there(chunk):
                break
            found.append(chunk)
            due = Index(chunk.last + 1)
        return tuple(found)

    def _log(self, chunks: tuple[LogChunk, ...]) -> tuple[LogChunk, ...]:
        about = self._view.about
        end = chunks[-1].end if chunks else self._view.begin
        self._total = max(0, about.end_pos - end.end_pos)
        self._own.log = list(chunks)
        made: deque[tuple[Future[PlainChunk], Entries]] = deque()
        cutter = Cutter()
        while end.position.index < about.index:
            entries = self._view.entries(Index(end.position.index + 1))
            check_following(end, entries, about.segment_bytes)
            end = entries.end
            for whole in cutter.add(entries):
                made.append((self._put(whole), whole))
                self._note(made)
            self._took(entries.span)
        if rest := cutter.rest():
            made.append((self._put(rest), rest))
        self._note(made, wait=True)
        return tuple(self._own.log)

    def _put(self, entries: Entries) -> Future[PlainChunk]:
        return self.writer.put(lambda: pack_entries(entries))

    def _note(self, made: deque[tuple[Future[PlainChunk], Entries]], *, wait: bool = False) -> None:
        """Put on record the chunks that are written, in their order."""
        while made and (wait or made[0][0].done()):
            future, entries = made.popleft()
            chunk, end = future.result(), entries.end
            one = LogChunk(
                *chunk,
                entries.first_index,
                entries.last_index,
                end.position.term,
                end.end_pos,
                end.chain_crc,
            )
            self._own.log.append(one)

    # --- the image --------------------------------------------------------------------------------

    def _front(self, size: int) -> tuple[PlainChunk, ...]:
        made = []
        for at in range(0, size, CHUNK_BYTES):
            data = self._view.image(at, min(CHUNK_BYTES, size - at))
            self._took(len(data))
            made.append(self.writer.put(partial(bytes, data)))
        return tuple(future.result() for future in made)

    def _rows(
        self, begin: int, tables: Iterable[Rows], before: tuple[RowsChunk, ...]
    ) -> tuple[RowsChunk, ...]:
        """Copy the rows that the last backup has not; ``begin``: where they begin in the image."""
        kept = [chunk for chunk in before if self.writer.is_there(chunk)]
        if sum(chunk.size < CHUNK_BYTES for chunk in kept) > MOST_SMALL:
            kept = []
        places = {name: (first, end) for name, first, end in tables}
        kept = [c for c in kept if any(_meet(run, places.get(name)) for name, *run in c.tables)]
        made: list[tuple[Future[PlainChunk], list[Rows]]] = []
        pieces: list[bytes] = []
        spans: list[Rows] = []
        for (name, low, high), data in self._new_rows(begin, tables, known_rows(kept)):
            pieces.append(data)
            spans.append((name, low, high))
            if sum(map(len, pieces)) >= CHUNK_BYTES:
                made.append((self.writer.put(partial(b"".join, pieces)), spans))
                pieces, spans = [], []
        if pieces:
            made.append((self.writer.put(partial(b"".join, pieces)), spans))
        return (*kept, *(RowsChunk(*future.result(), tuple(spans)) for future, spans in made))

    def _new_rows(
        self, begin: int, tables: Iterable[Rows], known: dict[str, list[tuple[int, int]]]
    ) -> Iterator[tuple[Rows, bytes]]:
        """The rows that are not known, piece by piece."""
        for name, first, end in tables:
            runs = known.get(name, ())
            low = next((stop for start, stop in runs if start <= first <= stop), first)
            while low < end:
                high = min(end, low + PIECE_ROWS)
                data = self._view.image(begin + (low - first) * ROW_SIZE, (high - low) * ROW_SIZE)
                self._took(len(data))
                yield (name, low, high), data
                low = high
            begin += (end - first) * ROW_SIZE


def _meet(run: list[int], place: tuple[int, int] | None) -> bool:
    """Whether rows [first, end) of a table are among those at a place of it."""
    return place is not None and run[0] < place[1] and place[0] < run[1]


def known_rows(chunks: Iterable[RowsChunk]) -> dict[str, list[tuple[int, int]]]:
    """The rows of each table that chunks have, as runs [first, end) that are as long as can be."""
    found: dict[str, list[tuple[int, int]]] = {}
    for chunk in chunks:
        for name, first, end in chunk.tables:
            found.setdefault(name, []).append((first, end))
    for name, runs in found.items():
        joined: list[tuple[int, int]] = []
        for first, end in sorted(runs):
            if joined and first <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(joined[-1][1], end)
            else:
                joined.append((first, end))
        found[name] = joined
    return found
