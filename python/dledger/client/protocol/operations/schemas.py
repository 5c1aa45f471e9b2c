"""The schemas of typed topics: asked for once, kept by log id, and changed. Generators (see
`dledger.client.protocol.client_state`)."""

from __future__ import annotations

from typing import NamedTuple

from dledger.client.protocol.client_state import ClientState, Operation, Request
from dledger.client.protocol.operations.requests import execute
from dledger.client.protocol.routing import CallPolicy
from dledger.errors import ConfigError, ProtocolError
from dledger.protocol.messages.catalog_commands import EvolveSchema
from dledger.protocol.messages.client import SchemasRequest, SchemasResponse, TopicInfo
from dledger.records.body.header import read_header
from dledger.records.columns.types import Columns
from dledger.types import Buffer


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
