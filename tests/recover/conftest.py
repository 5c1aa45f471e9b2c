"""A group whose majority goes, and the disk that is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dledger.client import Client
from dledger.protocol.messages.entry import MAGIC_NORMAL
from dledger.protocol.messages.entry_runs import stamp_all
from dledger.protocol.messages.membership import Member, MemberRole
from dledger.records.body.header import BODY_HEADER_SIZE, decode_header, encode_header
from dledger.recover.new_group import RecoveredGroup, recover
from dledger.recover.survivor import Survivor, look_at
from dledger.storage.disk.disk import RealDisk
from dledger.storage.file_store import FileStore
from dledger.storage.offline.inspect import inspect_store
from dledger.storage.opening import open_settings
from dledger.storage.recovery.open_files import StoreSettings
from dledger.testing import InProcessGroup
from dledger.types import Buffer, NodeId
from tests.backup.conftest import SMALL, fill, state

DISK = RealDisk()


def append_bodies(store: FileStore, *bodies: Buffer) -> None:
    """Entries that no other node has, and nobody has acknowledged."""
    term, segment = store.hard_state.term, store._parts.settings.segment_bytes
    store.append(stamp_all(store.end, term, MAGIC_NORMAL, bodies, segment))
    store.sync()


def append_again(store: FileStore) -> None:
    """The last batch once more, by nobody's session."""
    last = store.read(store.end.position.index, 1)[0]
    header = replace(decode_header(last.body), producer_id=0, producer_epoch=0, sequence=0)
    append_bodies(store, encode_header(header) + bytes(last.body[BODY_HEADER_SIZE:]))


def listing(*names: str, incarnation: int = 1) -> tuple[Member, ...]:
    """A list of voters."""
    return tuple(
        Member(NodeId(name), "127.0.0.1", 7000 + at, MemberRole.VOTER, incarnation + at)
        for at, name in enumerate(names)
    )


class Disaster:
    """A group of three. Of its nodes one is left, stopped, which has a batch that no other has."""

    def __init__(self, group: InProcessGroup) -> None:
        self.group = group
        client = group.client()
        fill(client)
        self.old_id = client.lineage().group_id
        self.left = group.leader
        self.others = [node for node in group.nodes if node != self.left]
        self.addresses = {node: info.address for node, info in group.nodes.items()}
        client.append("plain", [b"alone"] * 7, partition=1)
        self.before = state(client)
        for node in group.nodes:
            group.kill(node)
        with self.store() as store:
            append_again(store)

    @contextmanager
    def store(self) -> Iterator[FileStore]:
        """Its files, open."""
        look = inspect_store(self.directory)
        assert look.state is not None
        settings = StoreSettings(
            directory=self.directory,
            node_id=self.left,
            group=look.state.identity.group,
            segment_bytes=look.state.segment_bytes,
            index_file_bytes=look.state.index_file_bytes,
        )
        store = open_settings(settings, DISK)
        store.note_commit(store.end.position.index)  # all of it was acknowledged
        yield store
        store.close()

    @property
    def directory(self) -> Path:
        assert self.group.directory is not None
        return self.group.directory / self.left

    def look(self) -> Survivor:
        return look_at(self.directory, DISK)

    def recover(self) -> RecoveredGroup:
        """As the command does it."""
        survivor = self.look()
        return recover(survivor, self.addresses[self.left], survivor.group, DISK)

    def start(self, node: NodeId, *, joins: bool = False) -> None:
        """A node on its files, told the list of the old group."""
        settings = self.group._node_settings
        self.group._node_settings = {**settings, "joins": joins}
        self.group.restart(node)
        self.group._node_settings = settings

    def client(self) -> Client:
        """Of the node that is left."""
        client = Client(self.addresses[self.left])
        self.group._clients.append(client)
        return client


@pytest.fixture
def disaster(tmp_path: Path) -> Iterator[Disaster]:
    with InProcessGroup(3, tmp_path / "group", **SMALL) as group:
        yield Disaster(group)
