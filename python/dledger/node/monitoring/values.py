"""The values of a node's metrics, read from its parts on another thread: plain numbers, and copies
of what may change meanwhile."""

from __future__ import annotations

import ssl
from typing import Any

from dledger.net.connections.certificates import NodeCertificates
from dledger.node.meters import BOUNDS_S, Histogram, Meters
from dledger.node.parts import NodeParts
from dledger.storage.api import DiskLevel
from dledger.types import Role

Values = dict[str, "float | dict[str, float] | Histogram"]
"""By metric its value, or the values by label."""


def of_node(parts: NodeParts) -> Values:
    """All that does not depend on the number of topics and groups."""
    return _log(parts) | _members(parts) | _disk(parts) | _damage(parts) | _clients(parts)


def of_meters(meters: Meters) -> Values:
    """All that is counted from the start of the node on, whatever its state."""
    refused = {code.name: float(count) for code, count in list(meters.refused.items())}
    return {
        "dledger_append_duration_seconds": meters.append,
        "dledger_fsync_duration_seconds": meters.fsync,
        "dledger_commit_duration_seconds": meters.commit,
        "dledger_apply_duration_seconds": meters.apply,
        "dledger_requests_refused_total": refused,
        "dledger_requests_throttled_total": meters.throttled,
        "dledger_elections_total": meters.elections,
        "dledger_leader_changes_total": meters.leader_changes,
    }


def of_certificates(certificates: NodeCertificates) -> Values:
    """When those that are used now end, in seconds since 1970."""
    authorities = certificates.scraped.get_ca_certs()
    ends = {"node": float(certificates.not_after)}
    if authorities:
        ends["authority"] = min(
            float(ssl.cert_time_to_seconds(str(each["notAfter"]))) for each in authorities
        )
    return {"dledger_certificate_expiry_timestamp_seconds": ends}


def buckets_of(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """Cumulative counts by upper end, and the sum in seconds."""
    total, found = 0, []
    ends = (*map(str, BOUNDS_S), "+Inf")
    for end, count in zip(ends, list(histogram.counts), strict=True):
        total += count
        found.append((end, float(total)))
    return found, histogram.sum_s


def _one_of(names: Any, chosen: Any) -> dict[str, float]:
    return {each.name.lower(): float(each is chosen) for each in names}


def _log(parts: NodeParts) -> Values:
    context, raft = parts.context, parts.context.raft
    catalog, committed = context.catalog, raft.committed_index
    behind: dict[str, float] = {}
    if raft.role is Role.LEADER:
        behind = {
            str(member): float(max(0, committed - mark))
            for member, mark in raft.watermarks.items()
            if member != context.node_id
        }
    return {
        "dledger_role": _one_of(Role, raft.role),
        "dledger_leader_known": raft.leader_id is not None,
        "dledger_term": raft.term,
        "dledger_log_begin_index": raft.begin_index,
        "dledger_log_end_index": raft.end_index,
        "dledger_durable_index": raft.durable_index,
        "dledger_committed_index": committed,
        "dledger_applied_index": catalog.applied_index,
        "dledger_follower_lag_entries": behind,
        "dledger_log_bytes": context.store.bytes_used,
        "dledger_topics": len(catalog.topics_state.by_id),
        "dledger_partitions": len(catalog.partitions.used),
        "dledger_consumer_groups": len(catalog.consumer_groups.by_name),
    }


def _members(parts: NodeParts) -> Values:
    context = parts.context
    return {
        "dledger_node_info": {str(context.node_id): 1.0},
        "dledger_members": len(context.members.ids),
        "dledger_members_connected": sum(context.peers.connected().values()),
        "dledger_members_refused": len(context.peers.refused()),
        "dledger_admitted": context.is_admitted,
        "dledger_group_version": context.catalog.version.active,
        "dledger_clock_off": bool(parts.proposals.clocks.off),
    }


def _disk(parts: NodeParts) -> Values:
    context = parts.context
    space = context.disk.statvfs(context.node.directory)
    now_ms = context.environment.now_ms()
    return {
        "dledger_disk_size_bytes": space.total,
        "dledger_disk_free_bytes": space.free,
        "dledger_disk_level": _one_of(DiskLevel, parts.disk_watch.level),
        "dledger_retention_held_bytes": {
            "consumer_groups": float(parts.retention.holds.status()["held_bytes"]),
            "members": float(parts.retention.laggards.status(now_ms)["member_bytes"]),
        },
    }


def _damage(parts: NodeParts) -> Values:
    scrub = parts.scrubber.status()
    return {
        "dledger_faulty_entries": sum(last + 1 - first for first, last in parts.repairs.runs),
        "dledger_repaired_entries_total": parts.repairs.repaired,
        "dledger_catalog_lost": parts.context.catalog_lost,
        "dledger_scrub_position_bytes": scrub["at"],
        "dledger_scrub_passes_total": scrub["passes"],
        "dledger_scrub_last_pass_timestamp_seconds": scrub["last_pass_ms"] / 1000,
    }


def _clients(parts: NodeParts) -> Values:
    throttled = list(parts.router.port_sessions.throttled.items())
    moved = parts.router.port_sessions.traffic.moved().items()
    return {
        "dledger_client_connections": parts.router.clients,
        "dledger_client_connections_limit": parts.context.node.max_connections,
        "dledger_requests_total": parts.router.client_requests,
        "dledger_throttled_seconds_total": {name: one["ms"] / 1000 for name, one in throttled},
        "dledger_principal_received_bytes_total": {
            name: float(one.received) for name, one in moved
        },
        "dledger_principal_sent_bytes_total": {name: float(one.sent) for name, one in moved},
        "dledger_pending_requests": parts.proposals.waiting,
        "dledger_pending_bytes": parts.proposals.unanswered.held_bytes,
        "dledger_pending_bytes_limit": parts.context.group.pending_bytes,
        "dledger_pending_reads": len(parts.polls),
    }
