"""One tree for everything that goes wrong.

Each error is *definite* (nothing was written, nothing will be) or *indefinite* (it may have been),
and says whether asking again can help. Every message names the thing and the way out::

    DLedgerError
    |-- ConfigError             what you ask for cannot be                 definite
    |   |-- UnknownOption       ... with the nearest known name
    |   |-- NodeRemoved         the group has removed this node
    |   |-- ForkedClient        a producer or the like in a forked child
    |   |-- UnsupportedVersion  the group is newer than this release
    |   |-- NodeRemoved         this node is no member any more
    |   `-- SchemaMismatch      columns that do not fit a topic's
    |-- PathError               a path is a file, not writable, or full    definite
    |-- WrongGroup              that store or address is another group's   definite
    |-- AccessDenied            a secret or certificate is wrong           definite
    |   `-- PermissionDenied    no rule allows this, or one denies it      definite
    |-- PortInUse               another program listens there              definite
    |-- JavaMissing             Spark needs a Java that is not here        definite
    |-- Unavailable             no node, or no leader, could be reached    definite, retriable
    |   |-- NotLeader           ask .leader_id                             definite, retriable
    |   |-- QueueFull           the leader has enough in flight            definite, retriable
    |   `-- Behind              this replica has not got that far          definite, retriable
    |-- OutcomeUnknown          sent, never answered                       INDEFINITE
    |                           (retriable with a session)
    |-- DiskFull                the leader refuses writes                  definite
    |-- TopicNotFound, TopicExists, TopicRecreated                         definite
    |-- OffsetOutOfRange        .begin and .end are the range there is     definite
    |-- RecordTooLarge          over the group's limit                     definite
    |-- LimitReached            the group may have no more of this         definite
    |-- ProducerFenced          a newer session took over                  definite
    |-- ConsumerFenced          a partition is another member's by now     definite
    |   `-- SessionEnded        the group has no such member any more      definite
    |-- GroupInUse              only its members commit for that group     definite
    |-- OutOfOrderSequence      a batch before this one is missing         definite
    |                           (retriable in order)
    |-- TransactionError        a stage is gone or incomplete              definite
    |-- ReplayMismatch          a write is run again with other rows       definite
    |-- CorruptEntry            stored bytes do not match their checksum   definite
    |   `-- UnreadableBatch     the bytes that were appended are no records
    |-- StorageError            the disk failed: the node stops            INDEFINITE
    |   `-- CorruptStore        files contradict themselves: never guess   INDEFINITE
    |       `-- CatalogLost     they can be made again from the log        INDEFINITE
    `-- ProtocolError           a peer or client broke the protocol        definite
        |-- FrameTooLarge       a frame over the limit                     definite
        `-- FormatError         bytes are not in the format they claim     definite
"""

from __future__ import annotations

from typing import ClassVar


class DLedgerError(Exception):
    """Root of all errors of this package."""

    definite: ClassVar[bool] = True
    """True: not written, never will be. False: it may have been."""
    retriable: ClassVar[bool] = False
    """True: the same request can succeed later or elsewhere."""


class ConfigError(DLedgerError, ValueError):
    """A setting, option or argument cannot be."""


class UnknownOption(ConfigError):
    """No such option; the message has the nearest known one."""


class ForkedClient(ConfigError):
    """A producer, transaction or stage is used in a forked child of the process that made it."""


class UnsupportedVersion(ConfigError):
    """The group has a version that this release does not support; the message names one that
    does."""


class NodeRemoved(ConfigError):
    """The group has removed this node, which ends and does not start again on its files; the
    message says how it comes back."""


class SchemaMismatch(ConfigError):
    """The columns of a frame or read do not fit those of a typed topic; the message shows both side
    by side."""


class PathError(DLedgerError, OSError):
    """A path cannot be used."""


class WrongGroup(DLedgerError):
    """A store or an address belongs to another group or node."""


class AccessDenied(DLedgerError):
    """A node does not take this program, or is not the node that it should be: a secret,
    certificate, password or token is missing or wrong."""


class PermissionDenied(AccessDenied):
    """The group's rules do not let this program do that; the message has the rule that would. It is
    the same whether the topic or group that was asked for is there or not."""


class PortInUse(DLedgerError, OSError):
    """Another process listens on the port."""


class JavaMissing(DLedgerError):
    """No Java, or one that is too old for Spark."""


class Unavailable(DLedgerError):
    """No node or no leader could be reached in time; nothing was sent."""

    retriable = True


class NotLeader(Unavailable):
    """This node does not lead."""

    def __init__(self, message: str, leader_id: str = "") -> None:
        super().__init__(message)
        self.leader_id = leader_id


class QueueFull(Unavailable):
    """The leader has as much in flight as it may hold."""


class Behind(Unavailable):
    """This replica has not applied that far yet."""


class OutcomeUnknown(DLedgerError):
    """The request was sent and not answered: it may or may not have been done."""

    definite = False
    retriable = True


class DiskFull(DLedgerError):
    """The leader's disk is over its full level; it refuses writes and deletes nothing unexpired."""


class TopicNotFound(DLedgerError, LookupError):
    """There is no such topic."""


class TopicExists(DLedgerError):
    """The topic is there already."""


class TopicRecreated(DLedgerError):
    """The topic was deleted and created again: old offsets mean nothing in it."""


class OffsetOutOfRange(DLedgerError, LookupError):
    """The offset is not kept any more or not there yet; ``begin`` and ``end`` are the kept ones."""

    def __init__(self, message: str, begin: int = 0, end: int = 0) -> None:
        super().__init__(message)
        self.begin = begin
        self.end = end


class RecordTooLarge(DLedgerError, ValueError):
    """One record is over the group's limit."""


class LimitReached(DLedgerError):
    """The group has as many topics, partitions, groups or the like as it may; the message names the
    setting."""


class ProducerFenced(DLedgerError):
    """A newer session with the same name took over."""


class ConsumerFenced(DLedgerError):
    """A consumer is no member of its group any more, or another member has the partition."""


class SessionEnded(ConsumerFenced):
    """The group has not heard of a consumer for its session's time-out, and goes on without it."""


class GroupInUse(DLedgerError):
    """A consumer group has members: only they commit its offsets, and it cannot be deleted."""


class OutOfOrderSequence(DLedgerError):
    """A batch before this one has not arrived."""

    retriable = True


class TransactionError(DLedgerError):
    """A stage timed out, is incomplete, or was committed in another way."""


class ReplayMismatch(DLedgerError):
    """A write that was committed already is run again with other rows, or by a writer that has gone
    back."""


class CorruptEntry(DLedgerError):
    """Stored bytes do not match their checksum; they are never served. ``index`` is the entry's, -1
    when unknown."""

    def __init__(self, message: str, index: int = -1) -> None:
        super().__init__(message)
        self.index = index


class UnreadableBatch(CorruptEntry):
    """A batch that nobody can open: its bytes are those that were appended, and they are no
    records. ``topic``, ``partition`` and the offsets ``[begin, end)`` say which; a reader goes on
    from ``end`` on, or with ``on_damage="skip"``."""

    def __init__(
        self, what: str, way: str, *, topic: str, partition: int, begin: int, end: int
    ) -> None:
        super().__init__(f"{what}. To go on behind it: {way}")
        self.what = what
        self.topic = topic
        self.partition = partition
        self.begin = begin
        self.end = end


class StorageError(DLedgerError):
    """Reading, writing or syncing a file failed. Fatal for the node: it stops and never retries
    (D2)."""

    definite = False


class CorruptStore(StorageError):
    """A store's files contradict themselves in a way that no crash explains."""


class CatalogLost(CorruptStore):
    """The catalog, or the topic index that belongs to it, is damaged; the log is another matter."""


class ProtocolError(DLedgerError):
    """Bytes that no correct program sends."""


class FrameTooLarge(ProtocolError):
    """A frame over the limit."""


class FormatError(ProtocolError):
    """Bytes that are not in the format they claim to be in, e.g. no RocketMQ message; the text says
    which part."""
