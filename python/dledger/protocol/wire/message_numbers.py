"""The number of each message on the wire. Numbers are never used twice; a new message takes the
next free one."""

from __future__ import annotations

from typing import Any, Final

from dledger.protocol.messages import acl_decisions as acl
from dledger.protocol.messages import (
    audit,
    backup,
    client,
    fetched,
    hello,
    peer,
    repair,
    shared_offsets,
    splits,
    throttling,
)
from dledger.protocol.messages import catalog_commands as command
from dledger.protocol.messages import group_heartbeat as group
from dledger.protocol.messages import member_requests as members
from dledger.protocol.messages import rocketmq as broker
from dledger.protocol.messages import snapshot as install
from dledger.protocol.messages import user_commands as user

MESSAGES: Final[dict[int, type[Any]]] = {
    1: hello.HelloRequest,
    2: hello.HelloResponse,
    3: hello.HelloProof,
    # between the nodes of a group, one way
    16: peer.VoteRequest,
    17: peer.VoteResponse,
    18: peer.HeartBeatRequest,
    19: peer.HeartBeatResponse,
    20: peer.PushEntryRequest,
    21: peer.PushEntryResponse,
    22: peer.LeadershipTransferRequest,
    23: peer.LeadershipTransferResponse,
    24: repair.RepairRequest,
    25: repair.RepairResponse,
    26: peer.MemberRequest,
    27: peer.MemberResponse,
    28: install.SnapshotRequest,
    29: install.SnapshotResponse,
    # a client's requests, and each answer right behind
    32: client.MetadataRequest,
    33: client.MetadataResponse,
    34: client.AppendRequest,
    35: client.AppendResponse,
    36: client.ExecuteRequest,
    37: client.ExecuteResponse,
    38: client.FetchRequest,
    39: fetched.FetchResponse,
    40: client.OffsetsRequest,
    41: client.OffsetsResponse,
    44: client.GroupRequest,
    45: client.GroupResponse,
    46: client.StatusRequest,
    47: client.StatusResponse,
    48: client.TransferRequest,
    49: client.TransferResponse,
    50: client.AdmitRequest,
    51: client.AdmitResponse,
    # 42 and 43 asked for one range at a time
    52: splits.SplitRequest,
    53: client.SplitResponse,
    54: client.SchemasRequest,
    55: client.SchemasResponse,
    56: client.ListRequest,
    57: client.ListResponse,
    58: broker.PutMessageRequest,
    59: broker.PutMessageResponse,
    60: broker.ViewMessageRequest,
    61: broker.ViewMessageResponse,
    62: broker.GetMessageRequest,
    63: broker.GetMessageResponse,
    64: broker.QueryMessageRequest,
    65: broker.QueryMessageResponse,
    66: group.GroupHeartbeatRequest,
    67: group.GroupHeartbeatResponse,
    70: acl.AclDecisionRequest,
    71: acl.AclDecisionResponse,
    72: throttling.ThrottleNotice,
    # from node to node, to those whose release knows it
    74: audit.AuditLines,
    76: members.AlterMemberRequest,
    77: members.AlterMemberResponse,
    84: backup.OpenBackupRequest,
    85: backup.OpenBackupResponse,
    86: backup.ReadBackupLogRequest,
    87: backup.ReadBackupLogResponse,
    88: backup.ReadBackupImageRequest,
    89: backup.ReadBackupImageResponse,
    90: shared_offsets.SharedOffsetsRequest,
    91: shared_offsets.SharedOffsetsResponse,
}
KINDS: Final[dict[type[Any], int]] = {message: kind for kind, message in MESSAGES.items()}

COMMANDS: Final[dict[int, type[Any]]] = {
    1: command.CreateTopic,
    2: command.DeleteTopic,
    3: command.InitProducer,
    4: command.OpenStage,
    5: command.CommitTransaction,
    6: command.AbortTransaction,
    7: command.Expire,
    8: command.CommitOffsets,
    9: command.Admit,
    10: command.AddPartitions,
    11: command.CommitProgress,
    12: command.HoldRetention,
    13: command.EvolveSchema,
    14: command.DeleteGroup,
    15: command.AdoptCommitLog,
    16: command.EnforceSecret,
    17: command.CommitWrite,
    18: command.JoinGroup,
    19: command.ReleasePartitions,
    20: command.LeaveGroup,
    21: command.CommitConsumed,
    22: command.CommitConsumedTransaction,
    23: user.SetUser,
    24: user.RemoveUser,
    25: user.IssueToken,
    26: command.AddAcls,
    27: command.RemoveAcls,
    28: command.AlterQuotas,
    30: command.ChangeMembers,
    31: command.UpgradeGroup,
    32: command.AlterSettings,
}
"""Commands are stored in the log, so these numbers are for ever."""
COMMAND_TAGS: Final[dict[type[Any], int]] = {kind: tag for tag, kind in COMMANDS.items()}
