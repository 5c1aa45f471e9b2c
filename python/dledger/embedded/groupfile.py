"""The content of group.json: an embedded group's identity, and its users."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from dledger.embedded.process import ProcessId
from dledger.errors import ConfigError
from dledger.types import NodeId

FORMAT: Final = 2
PLAIN: Final = 1
"""The format of a group whose members are its founders: what older releases read, too."""


@dataclass(frozen=True, slots=True)
class User:
    """A program that needs the group; while one lives, nodes do not end by themselves.

    ``holds``: it has an `EmbeddedGroup` of its own. Otherwise it only came by `connect_path`.
    """

    process: ProcessId
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFile:
    """The content of group.json."""

    group: str
    """Identity; every store in the directory carries it."""
    members: tuple[NodeId, ...]
    addresses: dict[NodeId, str]
    local: tuple[NodeId, ...]
    """The nodes that run in this directory: all members, one when the others run elsewhere, or none
    of a group that has moved."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Fields of GroupConfig and NodeConfig that are not at their defaults."""
    users: tuple[User, ...] = ()
    named: bool = False
    """The caller named the peers: their addresses are not ours to choose, and other nodes run
    elsewhere."""
    place: str = ""
    """Device and inode of the directory; another one says that this is a copy."""
    founders: tuple[NodeId, ...] = ()
    """The members at the founding, where they are others today."""
    joining: tuple[NodeId, ...] = ()
    """Nodes of the directory that were started to join, and may not count yet."""
    leaving: tuple[NodeId, ...] = ()
    """Nodes whose directories go as soon as the group has removed them."""

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.addresses[member] for member in self.members)

    @property
    def founding(self) -> tuple[NodeId, ...]:
        """The members at the founding; those that came later have joined."""
        return self.founders or self.members

    @property
    def elsewhere(self) -> tuple[NodeId, ...]:
        """The members that do not run in this directory."""
        return tuple(member for member in self.members if member not in self.local)

    @property
    def has_moved(self) -> bool:
        """Whether the directory only says where the group is."""
        return not self.local

    def with_member(self, node: NodeId, address: str) -> GroupFile:
        """This with one more member, or with another address of one; it runs elsewhere."""
        return replace(
            self,
            members=tuple(dict.fromkeys((*self.members, node))),
            addresses={**self.addresses, node: address},
            founders=self.founding,
        )

    def with_node(self, node: NodeId, address: str) -> GroupFile:
        """This with a new node of the directory, which is to join."""
        return replace(
            self.with_member(node, address),
            local=(*self.local, node),
            joining=(*self.joining, node),
        )

    def joined(self, node: NodeId) -> GroupFile:
        """This with a node that counts by now."""
        return replace(self, joining=tuple(one for one in self.joining if one != node))

    def without_node(self, node: NodeId) -> GroupFile:
        """This without a member that the group has removed."""
        return replace(
            self.joined(node),
            members=tuple(one for one in self.members if one != node),
            local=tuple(one for one in self.local if one != node),
            addresses={one: where for one, where in self.addresses.items() if one != node},
            founders=self.founding,
        )

    def live_users(self) -> tuple[User, ...]:
        return tuple(user for user in self.users if user.process.alive)

    def with_user(self, user: User) -> GroupFile:
        """This with one more user and without the dead ones."""
        others = [
            u for u in self.live_users() if u.process != user.process or u.holds != user.holds
        ]
        return replace(self, users=(*others, user))

    def encode(self) -> bytes:
        users = [{**asdict(user.process), "holds": user.holds} for user in self.users]
        data = {"format": FORMAT, **asdict(self), "users": users}
        if not self.founders and not self.leaving:
            data["format"] = PLAIN
            del data["founders"], data["joining"], data["leaving"]
        return json.dumps(data, indent=2).encode() + b"\n"

    @staticmethod
    def decode(content: bytes, where: Path) -> GroupFile:
        """Raises `ConfigError` for a file that no version of this program has written, or a newer
        one has."""
        try:
            data = json.loads(content)
            if data["format"] > FORMAT:
                raise ConfigError(
                    f"{where}: format {data['format']} is newer than this program's {FORMAT}: "
                    f"upgrade"
                )
            return GroupFile(
                group=data["group"],
                members=tuple(data["members"]),
                addresses=dict(data["addresses"]),
                local=tuple(data["local"]),
                settings=dict(data["settings"]),
                users=tuple(User(ProcessId.from_dict(u), bool(u["holds"])) for u in data["users"]),
                named=bool(data["named"]),
                place=data["place"],
                founders=tuple(data.get("founders", ())),
                joining=tuple(data.get("joining", ())),
                leaving=tuple(data.get("leaving", ())),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(
                f"{where} is damaged ({type(error).__name__}: {error}); restore it from a copy: "
                "it names the group that the stores beside it belong to"
            ) from error
