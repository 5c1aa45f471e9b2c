"""Logs that are too long to be appended by clients: entries that the store itself writes, behind a
group that is stopped.

All of a log is real: files, headers, checksums, index units, the catalog's rows and its checkpoint,
each made by the code of a node. Only large values of zeros are not on the disk: they are holes in
the files, which read as the zeros that the checksums were made of. So a log of 100 GiB takes about
one of disk.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from dledger.catalog.state_machine import Catalog
from dledger.embedded.group import read_group
from dledger.embedded.settings import group_config, node_config
from dledger.node.checkpoints import Checkpoints
from dledger.protocol.messages.entry import HEADER_SIZE, MAGIC_NORMAL
from dledger.protocol.messages.entry_runs import Entries, stamp_all
from dledger.records.body.header import decode_header, plain_batches_of_run
from dledger.records.body.records import encode_batch
from dledger.storage.disk.disk import DiskFile, RealDisk, RealFile
from dledger.storage.opening import open_store
from dledger.types import Buffer

HOLE: Final = 4096
ZEROS: Final = bytes(HOLE)
TURN_BYTES: Final = 64 << 20
"""Of entries that are written at once."""
TURN_ENTRIES: Final = 2000
SYNC_BYTES: Final = 1 << 30


class SparseFile(RealFile):
    """Keeps blocks of zeros as holes."""

    __slots__ = ()

    def fallocate(self, size: int, begin: int = 0) -> None:
        """The length alone, no blocks."""
        if self.size() < size:
            self.truncate(size)

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        """The files of a log have their length, so bytes that are left out read as zeros."""
        for buffer in buffers:
            if len(buffer) < 2 * HOLE:
                super().pwritev([buffer], offset)
            else:
                view = memoryview(buffer)
                for at in range(0, len(view), HOLE):
                    piece = bytes(view[at : at + HOLE])  # views are compared byte by byte
                    if piece != ZEROS:
                        super().pwritev([piece], offset + at)
            offset += len(buffer)


class SparseDisk(RealDisk):
    """Opens `SparseFile`."""

    def open(self, path: Path, create: bool = False) -> DiskFile:
        real = super().open(path, create)
        real.__class__ = SparseFile
        return real


def body_of(size: int, topic_id: int, time_us: int) -> bytes:
    """The body of an entry with one record, whose value is ``size`` zeros."""
    batch = pa.record_batch({"value": pa.array([bytes(size)], pa.binary())})
    return b"".join(encode_batch(batch, topic_id=topic_id, partition=0, now_us=time_us))


def grow(
    path: str | Path, topic_id: int, size: int, *, end_pos: int = 0, end_index: int = 0
) -> int:
    """Append records of ``size`` zeros to partition 0, one an entry, to the log of a stopped group
    of one node, until it ends behind that position and at that index or behind it; the index of the
    last one. The catalog has them and is saved, as by a node that ends. Entries that are written
    together are of one time, later ones of a later one."""
    home, file = read_group(path)
    [member] = file.members
    config = group_config(file.group, file.members, file.settings)
    directory = home.node_directory(member)
    node = node_config(member, directory, file.addresses[member], file.settings)
    disk, synced_pos = SparseDisk(), 0
    store = open_store(config, node, disk)
    checkpoints = Checkpoints(directory, RealDisk())
    try:
        catalog = checkpoints.restore(store)
        assert catalog.applied_index == store.end.position.index, "the node ended as it should"
        while store.end.end_pos < end_pos or store.end.position.index < end_index:
            body = body_of(size, topic_id, int(time.time() * 1e6))
            count = max(1, min(TURN_ENTRIES, TURN_BYTES // len(body)))
            if end_index:
                count = min(count, end_index - store.end.position.index)
            term = store.hard_state.term
            entries = stamp_all(store.end, term, MAGIC_NORMAL, [body] * count, config.segment_bytes)
            store.append(entries)
            apply(catalog, entries)
            if store.end.end_pos - synced_pos > SYNC_BYTES:
                store.sync()
                synced_pos = store.end.end_pos
        checkpoints.save(catalog.snapshot(), catalog.applied_index, store)
        return store.end.position.index
    finally:
        checkpoints.close()
        store.close()


def apply(catalog: Catalog, entries: Entries) -> None:
    """Give the records of entries that are equal but for their places their offsets."""
    for run in entries.runs:
        header = decode_header(run.body(0))
        if len(run) == 1:
            entry = run.entry(0)
            catalog.apply_data(entry.index, entry.pos, len(entry.body), header, entry.body_crc)
            continue
        batches = plain_batches_of_run(run.pieces[0], run.starts, 0, HEADER_SIZE)
        offsets = catalog.apply_batches(run, header, batches)
        assert offsets is not None
        assert len(offsets) == len(run)
