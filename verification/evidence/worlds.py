"""The limits of each campaign: faults and parts that its world does not have. The list is written
by hand, because a run cannot tell what it left out."""

from __future__ import annotations

from typing import Final

ABSENT: Final[dict[str, tuple[str, ...]]] = {
    "simulator": (
        "sockets, TLS, processes, files of an operating system, writes past its page cache",
        "Spark, and the files that a RocketMQ broker reads",
        "rows of typed topics: their schemas change there, and no value of a column is checked",
        "a program that speaks the protocol well and means harm",
        "nodes of other releases, when the version is raised",
        "a client, or a member with an empty disk, that knows no group's id yet and asks the "
        "nodes of another group of "
        "this name first: it cannot tell, so those of that group refuse it there",
    ),
    "crash states, disk errors, byte flips": (
        "threads beside one another, and drives that report a sync that they did not do",
    ),
    "schedules": (
        "the loop of a node, the catalog and raft, which are in the simulator",
        "an embedded group's own files when the power goes, and the pipes by which its programs "
        "start nodes",
    ),
    "chaos": (
        "more than one machine: links are those of loopback, and all nodes share one clock and "
        "one kernel",
        "a power plug: a cut undoes what was noted above the operating system's files, and keeps "
        "the order of names in "
        "one directory; the node of a group of five that `dledger serve` runs is killed only",
        "TLS, Spark, a RocketMQ master and its slaves, members of a group whose disks are lost or "
        "damaged at the moment of a change",
    ),
    "judges": (
        "retention, which keeps everything in the seeds that they judge, and the order of one "
        "session's stale answers: only our own checkers judge these",
        "consumer groups, schemas and topics: their calls are in no history",
    ),
    "counted bench": (
        "cuts of the log, repairs and elections: the load is that of sound nodes, all of which "
        "stay up",
    ),
    "interrupts": (
        "calls while the leader changes or a node is down",
        "handlers that raise while Arrow's or the TLS library's own code runs",
    ),
    "forks": (
        "forks out of another thread than the main one; asyncio clients in the child, which tests "
        "alone have",
    ),
    "backups": (
        "stores of objects, which show a file when it is whole: the places are directories, by "
        "themselves and below a file system of fsspec that writes in place",
        "the power, retention that deletes what is being copied, and a second machine that backs "
        "up to the same place",
    ),
    "mutants": (
        "bugs that nobody thought of; a bug that a test named for it finds says that this test "
        "works, and no more",
    ),
}
"""Campaign, or several -> what it cannot show, in words."""


def absent() -> str:
    """The section of the page, in Markdown."""
    lines = ["## What is not in these worlds\n"]
    for campaign, missing in ABSENT.items():
        lines += [f"- {campaign}: {text}" for text in missing]
    return "\n".join([*lines, ""])
