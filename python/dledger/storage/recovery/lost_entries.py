"""A log that ends before an entry that its own files know to be committed: acknowledged entries are
gone from this disk.

No legal history leads there, because neither the hint of a commit nor a checkpoint of the catalog,
which sums up committed entries, ever goes beyond what is durable here (a state taken over from
another node may). So the disk has lost what it had synced. Such a node must not vote as the one
that acknowledged those entries: it becomes another incarnation, as one with an empty disk does
(B27). In a group of one no other node has them: its operator has to say that they may be lost, with
the number of the last entry that is left, so that it is said on purpose.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from dledger.environment import Environment
from dledger.errors import ConfigError, CorruptStore
from dledger.storage.meta.snapshots import SNAPSHOTS, SnapshotFiles
from dledger.storage.recovery.open_files import Parts
from dledger.types import Index

logger = logging.getLogger(__name__)


def known_commit(parts: Parts) -> Index:
    """The last entry that the files beside the log know to have been committed and durable here.

    Raises:
        StorageError: the disk failed.
    """
    hint = max(parts.record.hard_state.commit_hint, parts.mark.commit if parts.mark else -1)
    newest = _snapshots(parts).newest(above=max(hint, parts.installed))
    return Index(hint if newest is None else newest)


def forget_beyond(parts: Parts, end: Index) -> None:
    """Checkpoints of lost entries go: a start when the log has grown again would take other entries
    for summed up.

    Raises:
        StorageError: the disk failed.
    """
    _snapshots(parts).remove(above=max(end, parts.installed))


def _snapshots(parts: Parts) -> SnapshotFiles:
    return SnapshotFiles(parts.settings.directory / SNAPSHOTS, parts.disk, make=False)


def own_up(parts: Parts, committed: Index, end: Index, environment: Environment) -> str:
    """The loss among the entries up to ``committed`` in a log that ends at ``end``, "" for none. In
    a group of several the node is another incarnation on return, durably, and before any record of
    what was committed is removed.

    Raises:
        CorruptStore: the group has no other voter, and the settings do not accept the loss.
        ConfigError: they accept a loss that is not there, or of which other nodes have the entries.
        OSError: the disk failed.
    """
    settings = parts.settings
    # a state taken over comes before its log
    is_lost = committed > max(end, parts.installed) and not parts.imported
    accepted = settings.accept_loss
    if accepted is not None and not (is_lost and parts.is_alone and accepted == end):
        why = (
            f"its log ends at entry {end}"
            if is_lost and parts.is_alone
            else "nothing is lost that only it had"
        )
        raise ConfigError(f"--accept-loss {accepted}: not for {settings.directory}, {why}")
    if not is_lost:
        return ""
    text = (
        f"the log ends at entry {end}, but entries up to {committed} were committed here: the "
        f"disk has lost them"
    )
    if parts.is_alone:
        if accepted is None:
            raise CorruptStore(
                f"{settings.directory}: {text}, and the group has no other voter. Put back a "
                f"backup of the directory; "
                f"or, to go on without them, start once with 'dledger serve --accept-loss {end}'"
            )
        text += ", which was accepted"
    else:
        parts.members.save(
            replace(parts.members.membership, incarnation=environment.below(1 << 63))
        )
        text += (
            "; this node is another incarnation, and no voter until it is admitted ('dledger "
            "admit')"
        )
    logger.error("%s: %s", settings.directory, text)
    return text
