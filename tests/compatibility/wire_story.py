"""One frame of each message, with each field filled, as text: number, frame and message.

Runs under the release before, too, whose modules have other names::

    python wire_story.py write FILE    # a line for each message
    python wire_story.py read FILE     # decodes and encodes each line; exit code 1 if it differs
"""

from __future__ import annotations

import enum
import sys
import types
import typing
from collections.abc import Collection, Sequence
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

NEW = "dledger.protocol.messages", "dledger.protocol.wire", "message_numbers"
BEFORE = "dledger.messages", "dledger.wire", "kinds"


def modules() -> tuple[Any, Any, Any, Any]:
    """Those of entries, of the codec, of frames and of the messages' numbers."""
    try:
        messages, wire, numbers = NEW
        entry = import_module(f"{messages}.entry")
    except ModuleNotFoundError:
        messages, wire, numbers = BEFORE
        entry = import_module(f"{messages}.entry")
    return (entry, *(import_module(f"{wire}.{name}") for name in ("codec", "framing", numbers)))


WITH_BYTES = {
    "AppendRequest",
    "PutMessageRequest",
    "ViewMessageResponse",
    "GetMessageResponse",
    "QueryMessageResponse",
}
SINCE = {
    "FetchRequest": {"takes_run"},
    "FetchResponse": {"run"},
    "PushEntryResponse": {"is_watched"},
    "ExecuteRequest": {"reset"},
    "HelloRequest": {"takes_notices", "as_node", "authentication", "versions", "group_version"},
    "HelloResponse": {"versions", "group_version", "removed_by", "listed"},
    "MemberResponse": {"founders", "members", "former"},
}
"""Fields that came later; they are not sent while they say nothing."""
CHANGED = {"OffsetsRequest", "OffsetsResponse", "SplitRequest", "SplitResponse"}
"""Messages that have another form by now. No release had the former one under this protocol
version: a program of 0.1.0 is refused by its hello."""
ADDED = {
    "AuditLines",
    "AlterMemberRequest",
    "AlterMemberResponse",
    "GroupHeartbeatRequest",
    "GroupHeartbeatResponse",
    "JoinGroup",
    "ReleasePartitions",
    "LeaveGroup",
    "CommitConsumed",
    "CommitConsumedTransaction",
    "AlterQuotas",
    "AlterSettings",
    "ThrottleNotice",
    "SetUser",
    "RemoveUser",
    "IssueToken",
    "AclDecisionRequest",
    "AclDecisionResponse",
    "AddAcls",
    "RemoveAcls",
    "UpgradeGroup",
    "ChangeMembers",
    "OpenBackupRequest",
    "OpenBackupResponse",
    "ReadBackupLogRequest",
    "ReadBackupLogResponse",
    "ReadBackupImageRequest",
    "ReadBackupImageResponse",
    "SharedOffsetsRequest",
    "SharedOffsetsResponse",
}
"""Messages and commands that came later: they are sent by consumers, for the group's users, rules,
quotas, settings, version and changes of members, and for backups, whose nodes have to be of a
release that has them; or, as a notice or lines of an audit log, to clients and nodes that have said
that they know it."""
LAST = {"Code": 616, "Listing": 3}
"""The last value, of enumerations that have more by now."""
ENTRY, CODEC, FRAMING, NUMBERS = modules()


class Example:
    """Values of any type that a message's field has; no two numbers are the same."""

    def __init__(self) -> None:
        self._number = 0
        first = ENTRY.stamp(ENTRY.LogEnd(), 3, ENTRY.MAGIC_NORMAL, b"1st", 1 << 16)
        second = ENTRY.stamp(ENTRY.LogEnd.after(first), 3, ENTRY.MAGIC_NORMAL, b"2nd", 1 << 16)
        self._entries = (first, second)

    def of(self, kind: Any, name: str = "") -> Any:
        """A value of a type; ``name`` is the field's."""
        self._number += 1
        origin, inside = typing.get_origin(kind), typing.get_args(kind)
        if name == "sizes":
            return tuple(len(entry.body) for entry in self._entries)
        if kind is ENTRY.Entry:
            return self._entries[0]
        if isinstance(kind, typing.NewType):
            return self.of(kind.__supertype__, name)
        if origin in (Collection, Sequence) or (origin is tuple and inside[-1] is ...):
            if inside[0] is ENTRY.Entry:
                return self._entries
            return (self.of(inside[0]), self.of(inside[0]))
        if origin is tuple:
            return tuple(map(self.of, inside))
        if origin in (dict, typing.get_origin(typing.Mapping[str, int])):
            return {self.of(inside[0]): self.of(inside[1])}
        if origin in (typing.Union, types.UnionType):
            return self.of(next(one for one in inside if one is not type(None)))
        return self._plain(kind)

    def _plain(self, kind: Any) -> Any:
        if kind is Any:
            return "any"
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return kind(LAST.get(kind.__name__, list(kind)[-1]))
        if kind is bool:
            return True
        if is_dataclass(kind):
            return self.message(kind)
        made = {int: self._number, str: f"text {self._number}", bytes: b"%d" % self._number}
        return made[kind]

    def message(self, kind: Any) -> Any:
        """A message or a part of one, with each field."""
        hints = typing.get_type_hints(kind)
        return kind(**{name: self.of(hints[name], name) for name in names_of(kind)})


def names_of(kind: Any) -> list[str]:
    """The fields that a message had in the release before."""
    since = SINCE.get(kind.__name__, ())
    return [one.name for one in fields(kind) if one.name not in since]


def frames() -> list[str]:
    """``number<tab>frame in hex<tab>message`` of each message, and of each command."""
    found = []
    for number, kind in NUMBERS.MESSAGES.items():
        if kind.__name__ in CHANGED | ADDED:
            continue
        if kind.__name__ == "ExecuteRequest":
            for command in NUMBERS.COMMANDS.values():
                if command.__name__ in ADDED:
                    continue
                found.append(line(number, kind(command=Example().message(command), timeout_ms=7)))
        else:
            found.append(line(number, Example().message(kind)))
    return found


def line(number: int, message: Any) -> str:
    size = sum(one.size for one in getattr(message, "batches", ()) if hasattr(one, "size"))
    with_bytes = type(message).__name__ in WITH_BYTES
    payload = [b"payload"] if with_bytes else [bytes(size)] if size else []
    frame = b"".join(map(bytes, CODEC.encode(message, 5, payload)))
    return f"{number}\t{frame.hex()}\t{told(message)}"


def told(message: Any) -> str:
    """The message as the release before shows it."""
    kind = type(message)
    if kind.__name__ not in SINCE:
        return repr(plain(message))
    values = {name: getattr(message, name) for name in names_of(kind)}
    if "batches" in values:
        values["batches"] = tuple(values["batches"])
    return f"{kind.__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"


def plain(message: Any) -> Any:
    """The message with its entries' buffers as bytes."""
    if not hasattr(message, "entries"):
        return message
    entries = [
        replace(one, header=bytes(one.header), body=bytes(one.body)) for one in message.entries
    ]
    return replace(message, entries=tuple(entries))


def decoded(text: str) -> str:
    """The line that a decoded line gives again."""
    number, hexed, _ = text.split("\t", 2)
    frame = bytes.fromhex(hexed)
    header_len, payload_len = FRAMING.PREFIX.unpack_from(frame)[6:8]
    at = FRAMING.PREFIX_SIZE
    header, payload = frame[at : at + header_len], frame[at + header_len :]
    assert len(payload) == payload_len
    message = CODEC.decode(int(number), header, payload)
    return line(int(number), message)


def main(action: str, name: str) -> int:
    if action == "write":
        Path(name).write_text("\n".join(frames()) + "\n")
        return 0
    lines = Path(name).read_text().splitlines()
    wrong = [text for text in lines if decoded(text) != text]
    print(*(f"{text}\n{decoded(text)}" for text in wrong), sep="\n")  # noqa: T201
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
