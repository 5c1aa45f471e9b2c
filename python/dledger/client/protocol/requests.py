"""The questions that a client can ask, as generators (see
`dledger.client.protocol.client_state`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dledger.client.protocol.arguments import Time, microseconds
from dledger.client.protocol.client_state import SERVER_MS, ClientState, Operation, Request
from dledger.client.protocol.results import GroupOffsets, Lineage, Range, Span
from dledger.client.protocol.routing import CallPolicy
from dledger.client.protocol.seen_end_offsets import behind
from dledger.config import check_name
from dledger.errors import ConfigError, DLedgerError, OutcomeUnknown, TopicNotFound, Unavailable
from dledger.protocol.messages.catalog_commands import (
    AddPartitions,
    Command,
    CommitProgress,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    EnforceSecret,
    HoldRetention,
)
from dledger.protocol.messages.client import (
    AdmitRequest,
    ExecuteRequest,
    GroupRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetKind,
    OffsetsRequest,
    OffsetsResponse,
    SplitRequest,
    SplitSpan,
    StatusRequest,
    TopicInfo,
    TransferRequest,
)
from dledger.types import NodeId

if TYPE_CHECKING:
    pass

METADATA_TRIES = 20
SPANS = 2000
"""Most spans of one question to split: a few milliseconds of the leader's time."""


def execute(command: Command, what: str, repeatable: bool = True) -> Operation[dict[str, Any]]:
    """Commit a command; its result."""
    request = ExecuteRequest(command=command, timeout_ms=SERVER_MS)
    answer, _ = yield Request(request, CallPolicy(what=what, writes=True, repeatable=repeatable))
    result: dict[str, Any] = answer.result
    return result


def metadata(core: ClientState, request: MetadataRequest, what: str) -> Operation[MetadataResponse]:
    """The leader's view, which has every topic that was acknowledged."""
    answer: MetadataResponse
    for tries in range(METADATA_TRIES):
        # Whoever is asked first says who leads, and that may be itself: nobody else needs to be
        # asked before.
        answer, _payload = yield Request(request, CallPolicy(what=what, anybody=not tries))
        core.routes.learned(answer)
        if answer.leader_id == answer.node_id:
            break
    return answer


def lineage(core: ClientState) -> Operation[Lineage]:
    """Which group it is; asks only when none was met yet."""
    if not core.routes.peers:
        yield from metadata(core, MetadataRequest(), "which group it is")
    return core.routes.lineage


def topics(core: ClientState) -> Operation[list[TopicInfo]]:
    answer = yield from metadata(core, MetadataRequest(all_topics=True), "list topics")
    core.topics = {info.name: info for info in answer.topics}
    return sorted(answer.topics, key=lambda info: info.name)


def topic(core: ClientState, name: str) -> Operation[TopicInfo]:
    """A topic as it is now.

    Raises:
        TopicNotFound: it is not there.
    """
    check_name("topic", name)
    for _ in range(METADATA_TRIES):
        answer = yield from metadata(core, MetadataRequest(topics=(name,)), f"topic {name!r}")
        for info in answer.topics:
            if info.name == name:
                core.topics[name] = info
                return info
        core.topics.pop(name, None)
        # a new leader may still be catching up: this answer cannot be stale
        yield from offsets(core, (name,))
    raise Unavailable(f"topic {name!r}: it exists, but no leader describes it")


def described(core: ClientState, names: Sequence[str]) -> Operation[dict[str, TopicInfo]]:
    """Several topics as they are now, by one question when all are there.

    Raises:
        TopicNotFound: one is not there.
    """
    for name in names:
        check_name("topic", name)
    if not names:
        return {}
    answer = yield from metadata(
        core, MetadataRequest(topics=tuple(names)), f"topics {', '.join(names)}"
    )
    found = {info.name: info for info in answer.topics}
    core.topics.update(found)
    for name in names:
        if name not in found:
            found[name] = yield from topic(core, name)
    return {name: found[name] for name in names}


def known_topic(core: ClientState, name: str, partition: int | None = None) -> Operation[TopicInfo]:
    """A topic as last seen; as it is now when it had no such ``partition`` then."""
    info = core.topics.get(name)
    if info is not None and (partition or 0) < info.partitions:
        return info
    return (yield from topic(core, name))


def known_topics(core: ClientState, names: Sequence[str]) -> Operation[dict[str, TopicInfo]]:
    """Several topics as last seen; asks only for those it has not seen."""
    known = {name: info for name in names if (info := core.topics.get(name)) is not None}
    return known | (yield from described(core, [name for name in names if name not in known]))


def create_topic(
    core: ClientState, name: str, partitions: int, if_absent: bool, settings: Mapping[str, Any]
) -> Operation[TopicInfo]:
    check_name("topic", name)
    if partitions < 1:
        raise ConfigError(f"topic {name!r}: at least one partition, not {partitions}")
    texts = {key: str(value) for key, value in settings.items()}
    log_id = core.environment.unique()
    command = CreateTopic(
        name=name, log_id=log_id, partitions=partitions, settings=texts, if_absent=if_absent
    )
    what = f"create topic {name!r}"
    yield from execute(command, what)  # a repeat has the same log id: a success
    return (yield from _changed(core, name, what))


def add_partitions(core: ClientState, name: str, partitions: int) -> Operation[TopicInfo]:
    check_name("topic", name)
    what = f"add partitions to topic {name!r}"
    yield from execute(AddPartitions(name=name, partitions=partitions), what)
    return (yield from _changed(core, name, what))


def _changed(core: ClientState, name: str, what: str) -> Operation[TopicInfo]:
    """The topic as a command has left it."""
    try:
        return (yield from topic(core, name))
    except TopicNotFound:
        raise  # somebody has deleted it since
    except DLedgerError as error:
        raise OutcomeUnknown(f"{what}: it was done, and then {error}") from error


def delete_topic(core: ClientState, name: str) -> Operation[None]:
    check_name("topic", name)
    core.topics.pop(name, None)
    yield from execute(DeleteTopic(name=name), f"delete topic {name!r}", repeatable=False)


def offsets(
    core: ClientState,
    names: Sequence[str],
    kind: OffsetKind = OffsetKind.END,
    *,
    timestamp_us: Time = 0,
    stale: bool = False,
    newer_than: Mapping[str, Mapping[int, int]] | None = None,
    wait_ms: int = 0,
) -> Operation[OffsetsResponse]:
    """Offsets of several topics at one moment.

    Raises:
        Behind: for the whole time nobody answered who knows as much as this client has seen.
    """
    for name in names:
        check_name("topic", name)
    known = {
        name: {int(p): int(o) for p, o in wanted.items()}
        for name, wanted in (newer_than or {}).items()
    }
    time_us = microseconds("timestamp_us", timestamp_us)
    request = OffsetsRequest(
        topics=tuple(names),
        kind=kind,
        timestamp_us=time_us,
        stale=stale,
        newer_than=known,
        wait_ms=wait_ms,
    )
    what = f"{kind.name.lower()} offsets of {', '.join(names)}"
    patience = core.config.request_timeout_ms + wait_ms
    terms = CallPolicy(what=what, anybody=stale)
    answer: OffsetsResponse
    if kind not in (OffsetKind.END, OffsetKind.EDGES):
        answer, _ = yield Request(request, terms, (), 5000 + wait_ms, patience)
        return answer
    seen = core.ends.of(names)
    answer, _ = yield Request(
        request, terms, (), 5000 + wait_ms, patience, lambda found: behind(found, seen)
    )
    core.ends.told(answer)
    return answer


def topic_offsets(
    core: ClientState, name: str, kind: OffsetKind, **more: Any
) -> Operation[dict[int, int]]:
    """Offsets of one topic's partitions."""
    answer = yield from offsets(core, (name,), kind, **more)
    found: dict[int, int] = answer.offsets[name]
    return found


def split(core: ClientState, spans: Sequence[Span]) -> Operation[list[list[Range]]]:
    """The pieces of each span; one question for up to SPANS of them, and more where an answer is
    full."""
    pieces: list[list[Range]] = [[] for _ in spans]
    names = list(dict.fromkeys(span.topic for span in spans))
    infos = yield from known_topics(core, names)
    ids = {name: infos[name].topic_id for name in names}
    open_spans = [i for i, span in enumerate(spans) if span.start < span.end]
    while open_spans:
        asked, later = open_spans[:SPANS], open_spans[SPANS:]
        request = SplitRequest(spans=tuple(_rest(spans[i], ids, pieces[i]) for i in asked))
        try:
            answer, _ = yield Request(request, CallPolicy(what=f"split {', '.join(names)}"))
        except TopicNotFound:
            for name in names:
                core.topics.pop(name, None)
            raise
        unfinished = []
        for i, cuts in zip(asked, answer.cuts, strict=True):
            begin = pieces[i][-1].end if pieces[i] else spans[i].start
            for cut, size in cuts:
                pieces[i].append(Range(begin, cut, size))
                begin = cut
            if cuts and begin < spans[i].end and len(pieces[i]) < spans[i].max_pieces:
                unfinished.append(i)
        open_spans = unfinished + later
    return pieces


def _rest(span: Span, ids: Mapping[str, int], done: list[Range]) -> SplitSpan:
    return SplitSpan(
        topic_id=ids[span.topic],
        partition=span.partition,
        start_offset=done[-1].end if done else span.start,
        end_offset=span.end,
        target_bytes=span.target_bytes,
        max_pieces=span.max_pieces - len(done),
    )


def commit_offsets(
    consumer_group: str, wanted: Mapping[str, Mapping[int, int]], log_ids: Mapping[str, str] | None
) -> Operation[None]:
    check_name("consumer group", consumer_group)
    plain = {
        name: {int(p): int(o) for p, o in partitions.items()} for name, partitions in wanted.items()
    }
    command = CommitProgress(
        consumer_group=consumer_group, offsets=plain, log_ids=dict(log_ids or {})
    )
    yield from execute(command, f"commit offsets of group {consumer_group!r}")


def hold_retention(consumer_group: str, hold: bool) -> Operation[None]:
    check_name("consumer group", consumer_group)
    what = f"{'hold back' if hold else 'let go'} retention for group {consumer_group!r}"
    yield from execute(HoldRetention(consumer_group=consumer_group, hold=hold), what)


def delete_group(name: str) -> Operation[None]:
    check_name("consumer group", name)
    yield from execute(DeleteGroup(consumer_group=name), f"delete group {name!r}")


def group(name: str) -> Operation[GroupOffsets]:
    check_name("consumer group", name)
    answer, _ = yield Request(GroupRequest(consumer_group=name), CallPolicy(what=f"group {name!r}"))
    return GroupOffsets(name, answer.offsets)


def groups() -> Operation[list[str]]:
    answer, _ = yield Request(GroupRequest(), CallPolicy(what="list groups"))
    return sorted(answer.groups)


def status(core: ClientState) -> Operation[dict[NodeId, dict[str, Any]]]:
    """What every node says of itself; ``{"error": reason}`` for one that does not answer."""
    answer, _ = yield Request(MetadataRequest(), CallPolicy(what="status"))
    core.routes.learned(answer)
    found: dict[NodeId, dict[str, Any]] = {}
    for node_id, address in sorted(core.routes.peers.items()):
        terms = CallPolicy(what=f"status of {node_id}", address=address)
        try:
            said, _ = yield Request(
                StatusRequest(), terms, (), 2000, core.config.connect_timeout_ms
            )
        except DLedgerError as error:
            found[NodeId(node_id)] = {"error": str(error)}
        else:
            found[NodeId(node_id)] = said.status
    return found


def transfer(core: ClientState, to: str) -> Operation[None]:
    """Hand leadership to a node.

    Raises:
        Unavailable: it was given up; the former leader leads on.
    """
    check_name("node id", to)
    terms = CallPolicy(what=f"transfer leadership to {to}", writes=True, repeatable=False)
    yield Request(TransferRequest(to=NodeId(to)), terms, (), core.config.request_timeout_ms)
    core.routes.leader = core.routes.peers.get(to)


def admit(core: ClientState, node: str) -> Operation[None]:
    """Let a node that lost its disk vote and count again."""
    check_name("node id", node)
    terms = CallPolicy(what=f"admit {node}", writes=True)
    yield Request(
        AdmitRequest(node_id=NodeId(node), timeout_ms=SERVER_MS),
        terms,
        (),
        core.config.request_timeout_ms,
    )


def enforce_secret() -> Operation[None]:
    """Take no member without a proof from now on."""
    yield from execute(EnforceSecret(), "enforce the secret")
