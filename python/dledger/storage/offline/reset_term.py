"""Giving the stopped nodes of a group a term from which elections can go on.

A node's term only grows, and a false one from another node stays for ever. The rules under which it
may be lowered once, with their reasons:

- The new term is not below that of the last entry of any log: the leaders of later terms, if there
  were any, left no entry that could meet another one of the same index and term. `MARGIN` covers
  members whose files are elsewhere.
- All members are stopped at the same time. A vote counts only in a round that its candidate holds
  in memory, and rounds end with their processes; a candidate that starts asks for a later term than
  its own. So a vote given in a term from the new one on counts for no candidate any more, and no
  vote is given twice in a term that still can be won.
- In the new term itself each node's vote is spent on itself, as it is where DLedger's files are
  adopted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dledger.errors import ConfigError, CorruptStore, PathError
from dledger.protocol.messages.entry import HardState
from dledger.storage.disk.disk import Disk, Lock, RealDisk
from dledger.storage.log.walker import Walker
from dledger.storage.meta.hard_state import STATE_FILE, STATE_MAGIC, StateRecord
from dledger.storage.meta.slots import SlotFile
from dledger.storage.offline.inspect import inspect_store
from dledger.storage.recovery.open_files import take_lock
from dledger.types import MAX_TERM, TERM_JUMP, NodeId, Term

MARGIN: Final = 1 << 24
"""So far behind the last entry's term the new one is. That many elections without a leader that
writes, one every 150 ms, take a month; and a member with an empty disk still believes the terms
that follow (`TERM_JUMP`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """One node's part."""

    directory: Path
    node_id: NodeId
    group: str
    was: Term
    log_term: Term
    """Of the last entry in its log; -1 of an empty one."""
    term: Term
    """The one that it has now."""


@dataclass(slots=True)
class _Node:
    directory: Path
    lock: Lock
    record: StateRecord
    log_term: Term

    @property
    def is_astray(self) -> bool:
        """Whether its term leaves no room, or is more than a lawful step from its log."""
        term = self.record.hard_state.term
        return term >= MAX_TERM or term > self.log_term + TERM_JUMP


def reset_terms(
    directories: Sequence[Path], term: int | None = None, disk: Disk | None = None
) -> list[Reset]:
    """Give these stopped nodes of one group a new term; durable on return. ``term``: this one,
    which members whose files are elsewhere have been given; default: one that fits their logs.

    Raises:
        PathError: no store, or a node runs on it.
        ConfigError: not of one group, no term is astray, or ``term`` cannot be; nothing was
            changed.
        CorruptStore: a hard state cannot be read; nothing was changed.
    """
    disk = disk or RealDisk()
    nodes: list[_Node] = []
    try:
        for directory in directories:
            nodes.append(_open(Path(directory), disk))
        new = _new_term(nodes, term)
        return [_give(node, new, disk) for node in nodes]
    finally:
        for node in nodes:
            node.lock.release()


def _open(directory: Path, disk: Disk) -> _Node:
    look = inspect_store(directory, disk)
    if look.waiting is not None:
        raise PathError(
            f"{directory} is taking over another node's state: start the node, which ends that "
            f"first"
        )
    if look.state is None:
        raise CorruptStore(
            f"{directory / STATE_FILE}: there is no hard state that can be read, so no term to "
            f"reset"
        )
    known = look.mark.durable if look.mark is not None and not look.problems else None
    walker = look.walker() if known is None else Walker(look.data, known)
    for _ in walker.walk():
        continue  # to the end of the log
    return _Node(directory, take_lock(disk, directory), look.state, walker.end.position.term)


def _new_term(nodes: Sequence[_Node], term: int | None) -> Term:
    groups = sorted({node.record.identity.group for node in nodes})
    names = sorted(node.record.identity.node_id for node in nodes)
    if len(groups) > 1 or len(set(names)) < len(names):
        raise ConfigError(
            f"these are not the members of one group: nodes {', '.join(names)} of "
            f"{', '.join(groups)}"
        )
    last = max(node.log_term for node in nodes)
    if last + MARGIN >= MAX_TERM:
        raise ConfigError(
            f"the log itself has entries of term {last}, which cannot be taken back: read the "
            "topics from a node with stale=True, and write them to a new group"
        )
    if term is not None:
        if not last <= term <= MAX_TERM - MARGIN:
            raise ConfigError(
                f"--term {term}: the log ends in term {last}, so give {last} to {MAX_TERM - MARGIN}"
            )
        sound = [
            node for node in nodes if not node.is_astray and node.record.hard_state.term > term
        ]
        if sound:
            own = sound[0].record.hard_state.term
            where = sound[0].directory
            raise ConfigError(
                f"--term {term}: {where} is in term {own}, which is not astray; give that or more"
            )
        return Term(term)
    if not any(node.is_astray for node in nodes):
        terms = ", ".join(f"{node.directory}: {node.record.hard_state.term}" for node in nodes)
        raise ConfigError(
            f"no term here is astray, so none is reset ({terms}; the log ends in term {last})"
        )
    return Term(max([last + MARGIN, *[n.record.hard_state.term for n in nodes if not n.is_astray]]))


def _give(node: _Node, term: Term, disk: Disk) -> Reset:
    record, directory = node.record, node.directory
    was, me = record.hard_state, record.identity.node_id
    if was.term != term:
        new = replace(record, hard_state=HardState(term, me, was.commit_hint))
        SlotFile(disk.open(directory / STATE_FILE), STATE_MAGIC).write_both(new.pack())
    return Reset(
        directory=directory,
        node_id=me,
        group=record.identity.group,
        was=was.term,
        log_term=node.log_term,
        term=term,
    )
