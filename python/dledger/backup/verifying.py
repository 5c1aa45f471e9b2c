"""Reading all of a backup, to see that nothing of it is damaged or lost."""

from __future__ import annotations

from collections.abc import Iterator

from dledger.backup.chunks import check_following, chunk_path, read_chunk, unpack_entries
from dledger.backup.copying import known_rows
from dledger.backup.manifest import Manifest, PlainChunk, RowsChunk
from dledger.backup.reading import BackupReader, OnBytes
from dledger.backup.target import Target
from dledger.errors import DLedgerError


def verify_backups(
    target: Target, manifests: list[Manifest], on_bytes: OnBytes = lambda size: None
) -> Iterator[tuple[str, str]]:
    """Files of these backups that are damaged or missing, each once, and why."""
    told: set[str] = set()
    sound: set[str] = set()
    for manifest in manifests:
        for path, why in _verify(target, manifest, sound, on_bytes):
            if path not in told:
                told.add(path)
                yield path, why


def _verify(
    target: Target, manifest: Manifest, sound: set[str], on_bytes: OnBytes
) -> Iterator[tuple[str, str]]:
    end = manifest.begin
    for chunk in manifest.log:
        path = chunk_path(chunk.name)
        try:
            if chunk.name not in sound:
                entries = unpack_entries(read_chunk(target, chunk.name, chunk.size))
                on_bytes(chunk.size)
                skipped = max(0, end.position.index + 1 - chunk.first)
                check_following(end, entries[skipped:], manifest.segment_bytes)
                if entries.end != chunk.end:
                    raise DLedgerError("its last entry is not the one that the manifest says")
                sound.add(chunk.name)
        except DLedgerError as error:
            yield path, str(error)
        end = chunk.end
    if end.position.index != manifest.index:
        yield manifest.path, f"its log ends with entry {end.position.index}, not {manifest.index}"
    others: tuple[PlainChunk | RowsChunk, ...] = (*manifest.front, *manifest.rows)
    for plain in others:
        try:
            if plain.name not in sound:
                read_chunk(target, plain.name, plain.size)
                on_bytes(plain.size)
                sound.add(plain.name)
        except DLedgerError as error:
            yield chunk_path(plain.name), str(error)
    if all(chunk.name in sound for chunk in manifest.front):
        yield from _verify_rows(target, manifest)


def _verify_rows(target: Target, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """That every row of the image is in some chunk."""
    try:
        tables = BackupReader(target, manifest).head().tables
    except DLedgerError as error:
        yield manifest.path, str(error)
        return
    known = known_rows(manifest.rows)
    for name, first, end in tables:
        if not any(low <= first and end <= high for low, high in known.get(name, ())):
            yield manifest.path, f"rows {first} to {end} of table {name} are in no chunk"
