"""Result codes: DLedger's numbers and names, and from 600 on those that dledger adds."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """The result of a request. 200 is success; 4xx is the asker's matter, 5xx the leader's."""

    UNKNOWN = -1
    SUCCESS = 200
    TIMEOUT = 300
    METADATA_ERROR = 301
    NETWORK_ERROR = 302
    UNSUPPORTED = 303
    UNKNOWN_GROUP = 400
    UNKNOWN_MEMBER = 401
    UNEXPECTED_MEMBER = 402
    EXPIRED_TERM = 403
    NOT_LEADER = 404
    NOT_FOLLOWER = 405
    INCONSISTENT_STATE = 406
    INCONSISTENT_TERM = 407
    INCONSISTENT_INDEX = 408
    INCONSISTENT_LEADER = 409
    INDEX_OUT_OF_RANGE = 410
    UNEXPECTED_ARGUMENT = 411
    REPEATED_REQUEST = 412
    REPEATED_PUSH = 413
    DISK_ERROR = 414
    DISK_FULL = 415
    TERM_NOT_READY = 416
    FALL_BEHIND_TOO_MUCH = 417
    TAKE_LEADERSHIP_FAILED = 418
    INDEX_LESS_THAN_LOCAL_BEGIN = 419
    REQUEST_WITH_EMPTY_BODYS = 420
    PUSH_REQUEST_IS_FULL = 421
    INTERNAL_ERROR = 500
    TERM_CHANGED = 501
    WAIT_QUORUM_ACK_TIMEOUT = 502
    LEADER_PENDING_FULL = 503
    ILLEGAL_MEMBER_STATE = 504
    LEADER_NOT_READY = 505
    LEADER_TRANSFERRING = 506
    # dledger's own
    UNKNOWN_TOPIC = 600
    TOPIC_EXISTS = 601
    OFFSET_OUT_OF_RANGE = 602
    PRODUCER_FENCED = 603
    OUT_OF_ORDER_SEQUENCE = 604
    UNKNOWN_PRODUCER = 605
    UNKNOWN_STAGE = 606
    STAGE_INCOMPLETE = 607
    CORRUPT_ENTRY = 608
    RECORD_TOO_LARGE = 609
    BEHIND = 610
    """This replica has not applied that far yet; ask again, or ask another."""
    TRANSACTION_CONFLICT = 611
    MALFORMED = 612
    SCHEMA_MISMATCH = 613
    """The batch is raw and its topic typed, or the other way round, or its schema version is none
    of the topic's."""
    LIMIT_REACHED = 614
    """The group has as much of this as a setting allows, which the message names."""
    ACCESS_DENIED = 615
    """The other side has not shown a required proof, the secret or a certificate, or the group's
    rules do not let its principal do this."""
    REPLAY_MISMATCH = 616
    """The transaction was committed already, with other rows, or is older than the writer's last
    one."""
    CONSUMER_FENCED = 617
    """A member of a consumer group has not, or no longer, what it asks with: its membership was
    taken over by its successor, or the partition is another member's."""
    UNKNOWN_CONSUMER = 618
    """The group has no such member: its session has ended."""
    GROUP_IN_USE = 619
    """The consumer group has members: only they commit its offsets."""
