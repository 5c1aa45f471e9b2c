"""The commands that a restore puts behind the entries of a backup: the group's version, and the end
of topics that are not wanted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from dledger.catalog.snapshot import topics_of, version_of
from dledger.config import nearest
from dledger.errors import ConfigError, ProtocolError
from dledger.node.handlers.replaced_disks import COMMAND_PREFIX
from dledger.node.proposals.proposal import COMMAND_HEADER
from dledger.protocol.messages.catalog_commands import (
    Command,
    CreateTopic,
    DeleteTopic,
    UpgradeGroup,
)
from dledger.protocol.messages.entry import MAGIC_NORMAL, LogEnd
from dledger.protocol.messages.entry_runs import Entries, stamp_all
from dledger.protocol.wire import decode_command, encode_command
from dledger.records.body.header import BODY_HEADER_SIZE
from dledger.types import NO_INDEX, Buffer, Index, Term


class RestoredNames:
    """The topics and the version that a catalog has at the end of a restored log."""

    def __init__(self, snapshot: bytes, index: Index) -> None:
        """``snapshot``: the catalog as of ``index``, with which the restore begins; empty: with
        none."""
        self.topics = set(topics_of(snapshot)) if snapshot else set()
        self.version, self.release = version_of(snapshot) if snapshot else (0, "")
        self._index = index if snapshot else NO_INDEX

    def follow(self, entries: Entries) -> None:
        """These come next in the log."""
        for run in entries.runs:
            if run.last > self._index and run.has_body_with(COMMAND_PREFIX):
                for at in range(max(0, self._index + 1 - run.index), len(run)):
                    self._take(run.body(at))

    def _take(self, body: Buffer) -> None:
        if bytes(body[: len(COMMAND_PREFIX)]) != COMMAND_PREFIX:
            return
        with suppress(ValueError, ProtocolError):  # it is no command for the catalog either
            command = decode_command(body[BODY_HEADER_SIZE:])
            if isinstance(command, CreateTopic):
                self.topics.add(command.name)
            elif isinstance(command, DeleteTopic):
                self.topics.discard(command.name)
            elif isinstance(command, UpgradeGroup) and command.version > self.version:
                self.version, self.release = command.version, command.release

    def unwanted(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """The topics that are none of those; none where all are wanted, as ``wanted`` is empty.

        Raises:
            ConfigError: one that is wanted is not there.
        """
        if not wanted:
            return ()
        for name in wanted:
            if name not in self.topics:
                raise ConfigError(
                    f"--topics: the backup has no topic {name!r} there"
                    f"{nearest(name, sorted(self.topics))}"
                )
        return tuple(sorted(self.topics - set(wanted)))

    def upgrade_to(self, version: int, release: str) -> tuple[Command, ...]:
        """The command by which the group has at least that version, where it has an older one."""
        if version <= self.version:
            return ()
        self.version, self.release = version, release
        return (UpgradeGroup(version=version, release=release),)


def behind(
    end: LogEnd, commands: Sequence[Command], *, term: Term, segment_bytes: int
) -> Entries | None:
    """The entries of these commands, right behind ``end``; None: there are none."""
    bodies = [COMMAND_HEADER + encode_command(command) for command in commands]
    return stamp_all(end, term, MAGIC_NORMAL, bodies, segment_bytes) if bodies else None
