"""One file between two syncs: its bytes as written, its bytes that are on the disk for sure, and
the versions that may be there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Version:
    """One content of a block. ``freed``: the number of the resize that last took the block away
    before that, 0 for none: without that resize on the disk, no later write to the block's place
    can be there."""

    freed: int
    content: bytes


class PendingFile:
    """A file of which some bytes are not synced.

    Blocks (sectors or pages, ``grain`` bytes each) reach the disk independently, each in any
    version that it ever had since the last sync, never a mixture of two. Resizes reach it in their
    order, as file systems keep that of one file, but independently of the blocks: a length may be
    there without the bytes, and bytes without the length are not seen.
    """

    def __init__(self, grain: int) -> None:
        self.grain = grain
        self.cache = bytearray()
        self.durable = b""
        self.lengths: list[int] = [0]
        """The durable length, and each that was given since."""
        self.versions: dict[int, list[Version]] = {}
        """Of each block that was changed, by its number, oldest first."""
        self._freed: dict[int, list[int]] = {}

    def write(self, offset: int, data: bytes) -> None:
        """Bytes go into the cache; the file grows when they end behind it."""
        end, before = offset + len(data), len(self.cache)
        if end > before:
            self.cache.extend(bytes(end - before))
            self.lengths.append(end)
        self.cache[offset:end] = data
        if data:
            self._changed(offset // self.grain, (end - 1) // self.grain)

    def resize(self, size: int) -> None:
        """Cut, or extend with zeros."""
        before = len(self.cache)
        if size == before:
            return
        self.lengths.append(size)
        if size > before:
            self.cache.extend(bytes(size - before))
            return
        del self.cache[size:]
        first_gone = -(-size // self.grain)
        for block in range(first_gone, -(-max(before, len(self.durable)) // self.grain)):
            self._freed.setdefault(block, []).append(len(self.lengths) - 1)
            self._add(block, bytes(self.grain))
        if size % self.grain:
            self._changed(size // self.grain, size // self.grain)

    def rot(self, offset: int, mask: int) -> None:
        """A byte changes on the disk itself."""
        self.cache[offset] ^= mask
        durable = bytearray(self.durable)
        durable[offset] ^= mask
        self.durable = bytes(durable)

    def sync(self) -> None:
        """All of it is on the disk."""
        self.durable = bytes(self.cache)
        self.lengths = [len(self.cache)]
        self.versions.clear()
        self._freed.clear()

    @property
    def settled(self) -> bool:
        """Whether a crash leaves only one thing."""
        return not self.versions and len(self.lengths) == 1

    def choices(self, length: int) -> list[tuple[int, list[bytes]]]:
        """For the resizes up to number ``length``: each block in doubt and the contents that it may
        hold, the oldest first."""
        size = self.lengths[length]
        found = []
        for block in sorted(self.versions):
            if block * self.grain >= size:
                continue
            freed = max(
                (number for number in self._freed.get(block, ()) if number <= length), default=0
            )
            contents = [] if freed else [self._durable_block(block)]
            contents += [
                version.content for version in self.versions[block] if version.freed == freed
            ]
            found.append((block, contents))
        return found

    def content(self, length: int, blocks: list[tuple[int, bytes]]) -> bytes:
        """The file with these contents of blocks."""
        size, grain = self.lengths[length], self.grain
        result = bytearray(self.durable[:size].ljust(size, b"\0"))
        for block, content in blocks:
            low = block * grain
            result[low : low + grain] = content[: size - low]
        return bytes(result)

    def _durable_block(self, block: int) -> bytes:
        return self.durable[block * self.grain : (block + 1) * self.grain].ljust(self.grain, b"\0")

    def _changed(self, first: int, last: int) -> None:
        for block in range(first, last + 1):
            self._add(
                block,
                bytes(self.cache[block * self.grain : (block + 1) * self.grain]).ljust(
                    self.grain, b"\0"
                ),
            )

    def _add(self, block: int, content: bytes) -> None:
        versions = self.versions.get(block)
        freed = self._freed.get(block, [0])[-1]
        if versions is None:
            if freed == 0 and content == self._durable_block(block):
                return
            self.versions[block] = [Version(freed, content)]
        elif versions[-1] != Version(freed, content):
            versions.append(Version(freed, content))
