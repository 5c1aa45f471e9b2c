"""Where a log of DLedger ends, which its files alone do not say.

A follower that has to give entries up moves its end back and leaves the bytes where they are. Its
next entries cover some of them; the others still look like entries that lie where they say. They
are told by their index and term, as DLedger's own recovery does: an index that does not follow, or
a term below that of the entry before, is the end.

DLedger's ``checkpoint`` (until 0.3.2) names an entry that is committed, and ``index`` where it
lies; nothing up to there can be given up. Without these two the search begins in the third last
file, as DLedger's recovery does.
"""

from __future__ import annotations

import struct
from typing import Final

from dledger.protocol.messages.entry import HEADER, HEADER_SIZE
from dledger.rocketmq.columns.commit_log import ColumnBatch
from dledger.rocketmq.files.layout import Form, is_log_name
from dledger.rocketmq.files.storage import NOTHING, Storage
from dledger.rocketmq.with_numpy import np

UNIT: Final = struct.Struct(">iqiqq")
"""Of the index: magic, pos, size, index, term."""
COLUMNS: Final = ("entry_index", "term", "size")
FILES_BACK: Final = 3
TEXT_LIMIT: Final = 4096


def committed_end(storage: Storage, form: Form) -> int | None:
    """Offset behind the last entry that DLedger's checkpoint says is committed; None where no file
    says it."""
    index = committed_index(storage, form)
    if index is None:
        return None
    return form.begin if index < 0 else _end_of(storage, form, index)


def ledger_end(storage: Storage, form: Form, begin: int | None = None) -> int:
    """Where the log ends before the first entry that was given up; without one, where the files
    end.

    Args:
        begin: an entry's place from which on to look, in place of the committed end.
    """
    at = committed_end(storage, form) if begin is None else begin
    if at is None:
        at = form.files[max(0, len(form.files) - FILES_BACK)].span.start
    chain = _Chain()
    for file in form.files:
        if file.span.data_end <= at:
            continue
        begin = max(at, file.span.start)
        reader = file.reader(storage, entries=True, columns=COLUMNS, check=False)
        for batch in reader.batches(begin, file.span.data_end, exact=True):
            if not chain.take(batch):
                return max(chain.end, begin)
    return form.end


class _Chain:
    """Entries that follow one another."""

    def __init__(self) -> None:
        self._index = self._term = -1
        self._whole = True
        self.end = 0
        """Offset behind the last one."""

    def take(self, batch: ColumnBatch) -> bool:
        """Whether all of these follow."""
        self._whole = self._whole and not batch.damage
        if batch.rows is None or not batch.rows.num_rows:
            return True
        indexes, terms = (
            np.frombuffer(column.buffers()[1], np.int64) for column in batch.rows.columns[:2]
        )
        first = self._index if self._index >= 0 else int(indexes[0]) - 1
        follows = (np.diff(indexes, prepend=first) == 1) & (np.diff(terms, prepend=self._term) >= 0)
        if not self._whole and self._index >= 0:  # behind damage some are missing
            follows[0] = indexes[0] > self._index and terms[0] >= self._term
            self._whole = True
        if not follows.all():
            if follows[0]:
                sizes = np.frombuffer(batch.rows.column(2).buffers()[1], np.int32)
                self.end = batch.end - int(sizes[int(np.argmin(follows)) :].sum())
            return False
        self._index, self._term, self.end = int(indexes[-1]), int(terms[-1]), batch.end
        return True


def committed_index(storage: Storage, form: Form) -> int | None:
    """The index in DLedger's checkpoint, -1 for none yet; None where there is no checkpoint, as in
    DLedger 0.4.0 and in a node's first seconds. DLedger removes it for a moment when it writes the
    next one; then its copy of the last one counts.
    """
    if form.base is None:
        return None
    for name in ("checkpoint", "checkpoint.bak"):
        text = storage.find(f"{form.base}/{name}".lstrip("/"), TEXT_LIMIT)
        for line in (text or b"").decode("ascii", "replace").splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "committedIndex" and value.strip().removeprefix("-").isdecimal():
                return int(value)
    return None


def _end_of(storage: Storage, form: Form, index: int) -> int | None:
    """Where an entry ends by the index, if the entry is really there."""
    folder = f"{form.base}/index".lstrip("/")
    names = filter(is_log_name, (storage.list(folder) or NOTHING).files)
    at = index * UNIT.size
    starts = [start for start in map(int, names) if start <= at]
    if not starts:
        return None
    unit = storage.read(f"{folder}/{max(starts):020d}", at - max(starts), UNIT.size)
    if len(unit) < UNIT.size:
        return None
    _, pos, size, found, term = UNIT.unpack(unit)
    file = form.file_at(pos)
    if found != index or file is None or pos + max(size, HEADER_SIZE) > file.span.data_end:
        return None
    _, said_size, said_index, said_term, said_pos, *_ = HEADER.unpack(
        storage.read_exactly(file.path, file.span.start, pos, HEADER_SIZE)
    )
    agrees = (said_size, said_index, said_term, said_pos) == (size, index, term, pos)
    return pos + size if agrees else None
