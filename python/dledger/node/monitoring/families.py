"""All metrics of a node, by name: kind, meaning, labels. docs/metrics.md has the same table.

No label has a partition or an address, and those with names that users choose (`topic`,
`consumer_group`) or principals have so many values at most that a node has no more than 10,000
series.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["gauge", "counter", "histogram"]
MOST_TOPICS: Final = 1_500
"""Topics with series of their own; all others together are the topic ``other``."""
MOST_GROUPS: Final = 1_500
"""The same of consumer groups."""
MOST_SERIES: Final = 10_000
OTHER: Final = "other"


class Family(NamedTuple):
    """One metric."""

    name: str
    kind: Kind
    help: str
    label: str = ""


_G: Final = "gauge"
_C: Final = "counter"
_H: Final = "histogram"

_ALL: Final = (
    # health
    Family("dledger_node_info", _G, "1; its label has the id of the node", "node_id"),
    Family("dledger_ready", _G, "whether the node is ready, as /readyz says"),
    Family("dledger_loop_silent_seconds", _G, "how long the node's loop has not run"),
    # elections and members
    Family("dledger_role", _G, "1 for the role that the node has", "role"),
    Family("dledger_leader_known", _G, "whether the node knows a leader"),
    Family("dledger_term", _G, "term of the node"),
    Family("dledger_elections_total", _C, "terms in which the node asked for votes"),
    Family("dledger_leader_changes_total", _C, "times that another member led than before"),
    Family("dledger_members", _G, "members of the group"),
    Family("dledger_members_connected", _G, "other members to which the node has a link"),
    Family("dledger_members_refused", _G, "members whose last connection, or the last one to "
           "them, was refused"),
    Family("dledger_admitted", _G, "whether the node votes and counts"),
    Family("dledger_group_version", _G, "version of the group, as the node has applied it"),
    # the log
    Family("dledger_log_begin_index", _G, "first entry that is kept"),
    Family("dledger_log_end_index", _G, "last entry"),
    Family("dledger_durable_index", _G, "last entry that is on the node's disk"),
    Family("dledger_committed_index", _G, "last entry that is known to be on a majority"),
    Family("dledger_applied_index", _G, "last entry that is in the node's catalog"),
    Family("dledger_follower_lag_entries", _G, "committed entries that a member lacks, as the "
           "leader knows", "member"),
    Family("dledger_log_bytes", _G, "bytes of data and index files"),
    Family("dledger_retention_held_bytes", _G, "bytes of expired files that are kept for a reader "
           "or a member", "held_for"),
    # the disk
    Family("dledger_disk_size_bytes", _G, "size of the file system with the node's files"),
    Family("dledger_disk_free_bytes", _G, "bytes that are free there"),
    Family("dledger_disk_level", _G, "1 for the level of the disk: ok, warn, or full when writes "
           "are refused", "level"),
    # damage
    Family("dledger_faulty_entries", _G, "damaged entries that are not repaired"),
    Family("dledger_repaired_entries_total", _C, "entries repaired with another member's copy"),
    Family("dledger_catalog_lost", _G, "whether the catalog is lost and being fetched"),
    Family("dledger_scrub_position_bytes", _G, "how far the scrub has read the log"),
    Family("dledger_scrub_passes_total", _C, "times that the scrub has read the whole log"),
    Family("dledger_scrub_last_pass_timestamp_seconds", _G, "end of the last of them, seconds "
           "since 1970; 0: none yet"),
    # times
    Family("dledger_append_duration_seconds", _H, "appends at the leader, from request to answer"),
    Family("dledger_fsync_duration_seconds", _H, "syncs of the log to the disk"),
    Family("dledger_commit_duration_seconds", _H, "from a proposal to its entries on a majority"),
    Family("dledger_apply_duration_seconds", _H, "committed entries that came together, into the "
           "catalog"),
    # clients
    Family("dledger_client_connections", _G, "connections of clients"),
    Family("dledger_client_connections_limit", _G, "max_connections"),
    Family("dledger_requests_total", _C, "requests of clients, but for their status"),
    Family("dledger_requests_refused_total", _C, "answers that are no success, by code", "code"),
    Family("dledger_requests_throttled_total", _C, "requests behind which a client had to wait"),
    Family("dledger_throttled_seconds_total", _C, "times in which no request of a principal was "
           "taken, since it was over a quota", "principal"),
    Family("dledger_principal_received_bytes_total", _C, "bytes that the node has got from clients "
           "of a principal", "principal"),
    Family("dledger_principal_sent_bytes_total", _C, "bytes that it has sent to them", "principal"),
    Family("dledger_pending_requests", _G, "writes that wait for their answers"),
    Family("dledger_pending_bytes", _G, "their bytes"),
    Family("dledger_pending_bytes_limit", _G, "pending_bytes: more is refused"),
    Family("dledger_pending_reads", _G, "readers that wait for new records"),
    # clock, certificates
    Family("dledger_clock_off", _G, "whether the node's wall clock is off, or has jumped"),
    Family("dledger_certificate_expiry_timestamp_seconds", _G, "end of the validity of the "
           "certificate that the node uses, and of the first to end of its authorities', seconds "
           "since 1970",
           "certificate"),
    # topics and consumer groups
    Family("dledger_topics", _G, "topics"),
    Family("dledger_partitions", _G, "partitions that have had a record"),
    Family("dledger_consumer_groups", _G, "consumer groups"),
    Family("dledger_topic_records_total", _C, "records committed, since the topic was created",
           "topic"),
    Family("dledger_topic_bytes_total", _C, "their stored bytes", "topic"),
    Family("dledger_topic_read_records_total", _C, "records that the node sent to readers, whole "
           "batches", "topic"),
    Family("dledger_topic_read_bytes_total", _C, "their stored bytes", "topic"),
    Family("dledger_consumer_group_lag_records", _G, "records that a group has not processed",
           "consumer_group"),
    Family("dledger_consumer_group_lag_seconds", _G, "age of the oldest of them; 0: there is none",
           "consumer_group"),
)  # fmt: skip
FAMILIES: Final = {family.name: family for family in _ALL}
