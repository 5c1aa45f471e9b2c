"""The content of group.json: an embedded group's identity, and its users."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from dledger.embedded.process import ProcessId
from dledger.errors import ConfigError
from dledger.types import NodeId

FORMAT: Final = 1


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
    """The nodes that run in this directory: all members, or one when the others run elsewhere."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Fields of GroupConfig and NodeConfig that are not at their defaults."""
    users: tuple[User, ...] = ()
    named: bool = False
    """The caller named the peers: their addresses are not ours to choose, and other nodes run
    elsewhere."""
    place: str = ""
    """Device and inode of the directory; another one says that this is a copy."""

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.addresses[member] for member in self.members)

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
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(
                f"{where} is damaged ({type(error).__name__}: {error}); restore it from a copy: "
                "it names the group that the stores beside it belong to"
            ) from error
