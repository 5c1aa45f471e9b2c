"""The schemas of typed topics: asked for once, kept by log id, and changed. Generators (see
`dledger.client.protocol.client_state`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from dledger.client.protocol.client_state import ClientState, Operation, Request
from dledger.client.protocol.operations.requests import execute
from dledger.client.protocol.routing import CallPolicy
from dledger.errors import ConfigError, ProtocolError, SchemaMismatch
from dledger.protocol.messages.catalog_commands import EvolveSchema
from dledger.protocol.messages.client import SchemasRequest, SchemasResponse, TopicInfo
from dledger.records.body.header import read_header
from dledger.records.body.typed import check_parts, convert, key_bytes, stamped
from dledger.records.columns.evolution import merge, side_by_side
from dledger.records.columns.types import Columns
from dledger.types import Buffer

TRIES: Final = 100
"""So many other writers may change the columns while one tries to."""


class Evolved(NamedTuple):
    """The result of a change."""

    accepted: bool
    """False: another writer was first, and the columns are his."""
    version: int
    columns: Columns | None
    """Those of ``version``; None while there are none."""


def schemas(core: ClientState, topic: TopicInfo) -> Operation[list[Columns]]:
    """The columns of a typed topic, version 1 first, as they are now.

    Raises:
        TopicNotFound: it was deleted, or is raw.
    """
    while True:
        known = core.schemas.get(topic.log_id, [])
        request = SchemasRequest(topic_id=topic.topic_id, after=len(known))
        answer: SchemasResponse
        answer, _ = yield Request(request, CallPolicy(what=f"schemas of {topic.name!r}"))
        known = [*known, *map(Columns.parse, answer.schemas)]
        if len(known) > len(core.schemas.get(topic.log_id, [])):  # threads may share this
            core.schemas[topic.log_id] = known
        if len(known) >= answer.newest:
            return list(known)


def schema(core: ClientState, topic: TopicInfo, version: int) -> Operation[Columns]:
    """The columns of one version of a typed topic; asks only for one that it has not seen.

    Raises:
        ProtocolError: the topic does not have that version.
    """
    known = core.schemas.get(topic.log_id, [])
    if version > len(known):
        known = yield from schemas(core, topic)
    if not 1 <= version <= len(known):
        raise ProtocolError(
            f"topic {topic.name!r} has schema versions 1 to {len(known)}, not {version}"
        )
    return known[version - 1]


def of_body(core: ClientState, topic: TopicInfo, body: Buffer) -> Operation[Columns | None]:
    """The columns that a body was written under; None for one of plain records.

    Raises:
        ProtocolError: no body, or of a version that its topic does not have.
    """
    version = read_header(body).schema_version
    return (yield from schema(core, topic, version)) if version else None


def evolve_schema(
    core: ClientState, topic: TopicInfo, base_version: int, columns: Columns
) -> Operation[Evolved]:
    """Make these the columns of a typed topic, if ``base_version`` (0: none yet) still is its
    newest version.

    Raises:
        TopicNotFound: it was deleted.
        SchemaMismatch: these columns cannot follow those of ``base_version``
            (`dledger.records.columns.evolution`).
    """
    if not topic.typed:
        raise ConfigError(f"topic {topic.name!r} is raw: create one with type='typed'")
    command = EvolveSchema(
        topic=topic.name, log_id=topic.log_id, base_version=base_version, schema=columns.text
    )
    # a repeat finds its columns there: a success
    result = yield from execute(command, f"schema of {topic.name!r}")
    now = Columns.parse(result["schema"]) if result["schema"] else None
    return Evolved(result["accepted"], result["version"], now)


@dataclass(frozen=True, slots=True)
class TypedTopic:
    """A typed topic, as a writer needs it to write a frame."""

    info: TopicInfo
    version: int
    columns: Columns
    """Of that version."""
    frame: Columns

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch of the frame as those of the topic, ready to be appended.

        Raises:
            SchemaMismatch: a value does not fit its column, or is null where none may be.
        """
        rows = convert(batch, self.frame, self.columns, stamped(self.columns, self.version))
        check_parts(self.columns, rows)
        return rows

    def keys(self, rows: pa.RecordBatch) -> pa.Array | None:
        """The keys of rows that are the topic's, as bytes; None where there are none."""
        keys = key_bytes(self.columns, rows)
        return None if keys is None or keys.null_count == len(keys) else keys


def agree_schema(
    core: ClientState,
    topic: TopicInfo,
    frame: Columns,
    *,
    evolve: bool = False,
    way: str = "pass evolve=True",
) -> Operation[TypedTopic]:
    """The version of a topic's columns that a frame is written under; a new one when there must be,
    and may.

    Of two writers that change the columns at once the catalog takes the first; the other one starts
    from there.

    Args:
        way: how the caller lets the frame change the topic's columns, for the error.

    Raises:
        SchemaMismatch: the frame does not fit, with both schemas side by side.
    """
    versions = core.schemas.get(topic.log_id, [])
    if not _fits(versions, frame):
        versions = yield from schemas(core, topic)
    version = len(versions)
    now = versions[-1] if versions else None
    for _ in range(TRIES):
        wanted = frame
        if now is not None:
            step = merge(now, frame)
            if step.problems or (step.changes and not evolve):
                table = side_by_side(
                    f"topic {topic.name!r}, version {version}",
                    now,
                    "the frame",
                    frame,
                    {**step.changes, **step.problems},
                )
                raise _mismatch(topic.name, table, way, is_curable=not step.problems)
            wanted = step.columns
        if wanted == now:
            return TypedTopic(topic, version, wanted, frame)
        _, version, now = yield from evolve_schema(core, topic, version, wanted)
    raise SchemaMismatch(
        f"the columns of topic {topic.name!r} were changed by others {TRIES} times: write again"
    )


def _fits(versions: list[Columns], frame: Columns) -> bool:
    """Whether a frame can be written under the newest known version, which may not be the newest:
    readers go by that of the body."""
    if not versions:
        return False
    step = merge(versions[-1], frame)
    return not step.problems and step.columns == versions[-1]


def _mismatch(topic: str, table: str, way: str, is_curable: bool) -> SchemaMismatch:
    remedy = "cast, rename or drop the columns marked with !, or write to another topic"
    if is_curable:
        remedy = f"{way} to change the topic's columns, or drop or cast those marked with !"
    return SchemaMismatch(f"the frame does not fit topic {topic!r}: {remedy}\n{table}")
