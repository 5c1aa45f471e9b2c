"""The meaning of an answer: done, ask again, or an error that says the truth about whether the
request was written. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Final

from dledger import errors
from dledger.errors import DLedgerError
from dledger.protocol.messages.codes import Code


class AnswerOutcome(Enum):
    """The next step after an answer."""

    DONE = "done"
    AGAIN = "again"
    """The request was not written; asking again, perhaps elsewhere, can help."""
    UNCLEAR = "unclear"
    """It may have been written, or still be. Only a request that is safe to repeat is asked
    again."""
    FAILED = "failed"
    """The request was not written and asking again does not help."""


VERDICTS: Final[dict[Code, AnswerOutcome]] = {
    Code.SUCCESS: AnswerOutcome.DONE,
    Code.NOT_LEADER: AnswerOutcome.AGAIN,
    Code.LEADER_NOT_READY: AnswerOutcome.AGAIN,
    Code.LEADER_TRANSFERRING: AnswerOutcome.AGAIN,
    Code.LEADER_PENDING_FULL: AnswerOutcome.AGAIN,
    Code.METADATA_ERROR: AnswerOutcome.AGAIN,
    Code.TERM_NOT_READY: AnswerOutcome.AGAIN,
    Code.UNKNOWN_MEMBER: AnswerOutcome.AGAIN,
    Code.BEHIND: AnswerOutcome.AGAIN,
    Code.DISK_FULL: AnswerOutcome.AGAIN,
    Code.TIMEOUT: AnswerOutcome.UNCLEAR,
    Code.NETWORK_ERROR: AnswerOutcome.UNCLEAR,
    Code.EXPIRED_TERM: AnswerOutcome.UNCLEAR,
    Code.TERM_CHANGED: AnswerOutcome.UNCLEAR,
    Code.WAIT_QUORUM_ACK_TIMEOUT: AnswerOutcome.UNCLEAR,
    Code.DISK_ERROR: AnswerOutcome.UNCLEAR,
    Code.INTERNAL_ERROR: AnswerOutcome.UNCLEAR,
    Code.UNKNOWN: AnswerOutcome.UNCLEAR,
}
"""Codes that are not here mean FAILED."""
DISK_FULL_PATIENCE_MS: Final = 3000
"""A leader with a full disk hands over; a call waits this long for a leader that has room."""

_ERRORS: Final[dict[Code, type[DLedgerError]]] = {
    Code.UNSUPPORTED: errors.ConfigError,
    Code.UNKNOWN_GROUP: errors.WrongGroup,
    Code.DISK_FULL: errors.DiskFull,
    Code.UNKNOWN_TOPIC: errors.TopicNotFound,
    Code.TOPIC_EXISTS: errors.TopicExists,
    Code.PRODUCER_FENCED: errors.ProducerFenced,
    Code.CONSUMER_FENCED: errors.ConsumerFenced,
    Code.UNKNOWN_CONSUMER: errors.SessionEnded,
    Code.GROUP_IN_USE: errors.GroupInUse,
    Code.OUT_OF_ORDER_SEQUENCE: errors.OutOfOrderSequence,
    Code.UNKNOWN_PRODUCER: errors.OutOfOrderSequence,
    Code.UNKNOWN_STAGE: errors.TransactionError,
    Code.STAGE_INCOMPLETE: errors.TransactionError,
    Code.TRANSACTION_CONFLICT: errors.TransactionError,
    Code.REPLAY_MISMATCH: errors.ReplayMismatch,
    Code.CORRUPT_ENTRY: errors.CorruptEntry,
    Code.RECORD_TOO_LARGE: errors.RecordTooLarge,
    Code.LIMIT_REACHED: errors.LimitReached,
    Code.MALFORMED: errors.ConfigError,
    Code.SCHEMA_MISMATCH: errors.SchemaMismatch,
    Code.UNEXPECTED_ARGUMENT: errors.ConfigError,
    Code.LEADER_PENDING_FULL: errors.QueueFull,
    Code.ACCESS_DENIED: errors.PermissionDenied,
    Code.BEHIND: errors.Behind,
}


def answer_outcome(code: Code) -> AnswerOutcome:
    """The next step after this answer."""
    return VERDICTS.get(code, AnswerOutcome.FAILED)


def error_for(
    code: Code, message: str, what: str, leader_id: str = "", begin: int = 0, end: int = 0
) -> DLedgerError:
    """The error of an answer: ``what`` was asked, in a few words, stands in front of the node's own
    words."""
    text = f"{what}: {message or code.name}"
    if code is Code.NOT_LEADER:
        return errors.NotLeader(text, leader_id)
    if code is Code.OFFSET_OUT_OF_RANGE:
        return errors.OffsetOutOfRange(text, begin, end)
    if answer_outcome(code) is AnswerOutcome.UNCLEAR:
        return errors.OutcomeUnknown(f"{text}; it may or may not have been done")
    known = _ERRORS.get(code)
    if known is None:
        known = errors.Unavailable if answer_outcome(code) is AnswerOutcome.AGAIN else DLedgerError
    return known(text)
