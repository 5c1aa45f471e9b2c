"""Manifests: what each backup consists of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dledger.backup.chunks import digest
from dledger.errors import CorruptStore
from dledger.protocol.messages.entry import LogEnd
from dledger.protocol.messages.membership import Ancestors
from dledger.types import Index, NodeId, Position, Term

MANIFESTS: Final = "manifests"
FORMAT: Final = 1
_HASH: Final = 32
"""Digits of the hash that are in a name."""


class PlainChunk(NamedTuple):
    """A chunk by its SHA-256, and its bytes."""

    name: str
    size: int


class LogChunk(NamedTuple):
    """A chunk of the log: entries ``first`` to ``last``, and the end of a log that ends with the
    last one (term, end_pos and chain_crc)."""

    name: str
    size: int
    first: int
    last: int
    term: int
    end_pos: int
    chain_crc: int

    @property
    def end(self) -> LogEnd:
        return LogEnd(Position(Term(self.term), Index(self.last)), self.end_pos, self.chain_crc)


class RowsChunk(NamedTuple):
    """A chunk of rows of topic indexes: (table, first row, row behind the last), back to back."""

    name: str
    size: int
    tables: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One backup."""

    group: str
    group_id: str
    ancestors: Ancestors
    members: tuple[NodeId, ...]
    segment_bytes: int
    index_file_bytes: int
    release: str
    time_ms: int
    index: Index
    """Log and catalog are as of this entry."""
    term: Term
    begin: LogEnd
    """The place before the first entry of the log."""
    log: tuple[LogChunk, ...]
    """The first one may begin with entries before that."""
    front: tuple[PlainChunk, ...]
    """The image up to its rows (`dledger.node.snapshot.image`)."""
    rows: tuple[RowsChunk, ...]
    """With all rows of the image, in any order, and maybe older ones."""

    @property
    def chunks(self) -> dict[str, int]:
        """Every chunk that it needs, by name, with its bytes."""
        every: tuple[PlainChunk | LogChunk | RowsChunk, ...] = (*self.log, *self.front, *self.rows)
        return {one.name: one.size for one in every}

    def encode(self) -> bytes:
        begin = self.begin
        value = {
            "format": FORMAT,
            **{name: getattr(self, name) for name in _PLAIN},
            "begin": [begin.position.index, begin.end_pos, begin.chain_crc],
            "log": self.log,
            "front": self.front,
            "rows": self.rows,
        }
        return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()

    @property
    def name(self) -> str:
        """Names of later backups are greater."""
        return f"{self.index:020d}-{self.time_ms:013d}-{digest(self.encode())[:_HASH]}"

    @property
    def path(self) -> str:
        return f"{MANIFESTS}/{self.name}.json"

    @staticmethod
    def decode(name: str, data: bytes, where: str) -> Manifest:
        """The inverse of `encode`.

        Raises:
            CorruptStore: these are not the bytes of that name.
        """
        if digest(data)[:_HASH] != name.rpartition("-")[2]:
            raise CorruptStore(
                f"{where} is damaged, or was not written to its end: remove it, and use an older "
                "backup ('dledger backup list') or make a new one; its chunks stay where other "
                "backups need them"
            )
        try:
            value: dict[str, Any] = json.loads(data)
            if value["format"] > FORMAT:
                raise CorruptStore(
                    f"{where}: format {value['format']} is newer than this program's {FORMAT}: "
                    "upgrade"
                )
            index, pos, chain = value["begin"]
            plain = {name: value[name] for name in _PLAIN}
            plain["ancestors"] = tuple((str(one), int(at)) for one, at in value["ancestors"])
            plain["members"] = tuple(value["members"])
            return Manifest(
                **plain,
                begin=LogEnd(Position(Term(-1), Index(index)), pos, chain),
                log=tuple(LogChunk(*one) for one in value["log"]),
                front=tuple(PlainChunk(*one) for one in value["front"]),
                rows=tuple(
                    RowsChunk(one, size, tuple((t[0], t[1], t[2]) for t in tables))
                    for one, size, tables in value["rows"]
                ),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptStore(f"{where} is no manifest: {error!r}") from error


_PLAIN: Final = (
    "group",
    "group_id",
    "ancestors",
    "members",
    "segment_bytes",
    "index_file_bytes",
    "release",
    "time_ms",
    "index",
    "term",
)
