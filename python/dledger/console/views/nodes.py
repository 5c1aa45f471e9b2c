"""The nodes of a group, of `Client.status`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dledger.client.member_lists import ListedMember, listed_members

if TYPE_CHECKING:
    from dledger.client import DynamicSetting

NOT_LISTED: Final = ListedMember("VOTER", None)


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node. Of one that does not answer there is only ``error``."""

    node: str
    role: str = ""
    member: str = ""
    """Where it does not vote: what it is instead."""
    rack: str = ""
    """Empty: nobody has said where it stands."""
    term: int | None = None
    lag: int | None = None
    """Entries that are on the leader's disk and not yet on its own."""
    disk_level: str = ""
    bytes_used: int | None = None
    release: str = ""
    """Empty: its status does not say."""
    address: str = ""
    uptime_s: float | None = None
    connections: int | None = None
    notes: tuple[str, ...] = ()
    """What an operator looks into."""
    error: str = ""

    @property
    def leads(self) -> bool:
        return self.role == "LEADER"


def node_rows(status: Mapping[str, Mapping[str, Any]]) -> list[NodeRow]:
    """By name."""
    ends = {node: int(said.get("durable_index", -1)) for node, said in status.items()}
    leaders = [node for node, said in status.items() if said.get("role") == "LEADER"]
    newest = max((int(status[node].get("term", 0)) for node in leaders), default=None)
    leader = next((node for node in leaders if status[node].get("term", 0) == newest), None)
    end = ends[leader] if leader is not None else max(ends.values(), default=-1)
    listed = listed_members(status.values())
    return [
        _row(str(node), said, end, listed.get(str(node), NOT_LISTED))
        for node, said in sorted(status.items())
    ]


def _row(node: str, said: Mapping[str, Any], end: int, listed: ListedMember) -> NodeRow:
    rack = listed.rack or ""
    if "error" in said:
        return NodeRow(node, role="does not answer", rack=rack, error=str(said["error"]))
    return NodeRow(
        node,
        role=str(said.get("role", "")),
        member="" if listed.role == "VOTER" else listed.role.lower(),
        rack=rack,
        term=said.get("term"),
        # the nodes are asked one after the other: a follower may be seen later than the leader
        lag=max(0, end - int(said["durable_index"])) if _is_whole(said) else None,
        disk_level=str(said.get("disk_level", "")),
        bytes_used=said.get("bytes_used"),
        release=str(said.get("release", "")),
        address=f"{said['host']}:{said['port']}" if "host" in said else "",
        uptime_s=said["uptime_ms"] / 1000 if "uptime_ms" in said else None,
        connections=said.get("connections"),
        notes=tuple(_notes(said)),
    )


def _is_whole(said: Mapping[str, Any]) -> bool:
    """Whether the group's rules let this console see all that the node says."""
    return "durable_index" in said


def _notes(said: Mapping[str, Any]) -> list[str]:
    notes = []
    if not _is_whole(said):
        notes.append("the rest takes the right to describe cluster")
    if not said.get("admission", {}).get("admitted", True):
        notes.append("not admitted: it neither votes nor counts (dledger admit)")
    if faulty := said.get("repair", {}).get("faulty"):
        notes.append(f"{len(faulty)} damaged entries")
    if off := said.get("clock", {}).get("off"):
        notes.append(f"its wall clock is {off}")
    if said.get("disk_level") in {"WARN", "FULL"}:
        notes.append(f"disk {said['disk_level']}")
    if said.get("catalog_lost"):
        notes.append("its catalog is lost")
    if said.get("compiled") is False:
        notes.append("runs without compiled functions")
    return notes


def sentence(rows: list[NodeRow]) -> str:
    """The state of the group in one line, for the head of each page."""
    if not rows:
        return "no node answers"
    leader = next((row.node for row in rows if row.leads), None)
    answer = sum(not row.error for row in rows)
    silent = [row.node for row in rows if row.error]
    line = f"{leader} leads" if leader else "no leader"
    if silent:
        return f"{line}; {answer} of {len(rows)} nodes answer, not {', '.join(silent)}"
    return f"{line}; all {len(rows)} nodes answer" if len(rows) > 1 else f"{line}; it is alone"


def setting_rows(status: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """What is set for the group as its nodes say; with the name of the node where they differ."""
    found: dict[str, dict[str, str]] = {}
    for node, said in sorted(status.items()):
        if "error" not in said:
            for name, value in _settings(said).items():
                found.setdefault(name, {})[str(node)] = value
    return [
        (name, values.popitem()[1])
        if len(set(values.values())) == 1
        else (name, "; ".join(f"{node}: {value}" for node, value in values.items()))
        for name, values in found.items()
    ]


def kept_rows(settings: Iterable[DynamicSetting]) -> list[tuple[str, str]]:
    """The settings that the group keeps."""
    return [(one.name, one.value) for one in settings if one.source != "node"]


def _settings(said: Mapping[str, Any]) -> dict[str, str]:
    secret = said.get("secret", {})
    has = "members prove it" if secret.get("has") else "none"
    members = ", ".join(map(str, said.get("members", ())))
    if not _is_whole(said):
        return {"group": str(said.get("group", "")), "members": members}
    return {
        "group": str(said.get("group", "")),
        "group id": str(said.get("group_id", "")) or "none: it is older than such ids",
        "members": members,
        "flush": str(said.get("flush", "")),
        "secret": f"{has}, {'required' if secret.get('required') else 'not required'}",
    }
