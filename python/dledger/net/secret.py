"""A secret that programs share: the file it is kept in, and the proof, over a connection's hello,
that one has it.

The proof is HMAC-SHA256 (RFC 2104) of the hellos of both sides, their nonces among it, and of the
side that proves. So a proof is good for one connection, in one direction, of one pair of programs:
it can be neither replayed nor sent back. It proves the other side when a connection begins;
messages after that are protected by TLS alone.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from enum import Enum
from pathlib import Path
from typing import Final

from dledger.config import Credentials
from dledger.config.credentials import parse_credentials
from dledger.errors import ConfigError
from dledger.interrupts import suppressed, told_as
from dledger.protocol.messages.hello import HelloRequest, HelloResponse
from dledger.protocol.messages.membership import pack_list
from dledger.protocol.wire.msgpack import pack

LEAST: Final = 32
"""Bytes of a secret, at least: 32 hexadecimal digits have 128 bits of chance."""
MOST: Final = 4096


class Side(Enum):
    """The side that proves."""

    OPENS = "opens"
    ACCEPTS = "accepts"
    REMOVES = "removes"
    """It accepts connections, and refuses this one of a node that the group has removed."""


def said(
    by: str, hello: HelloRequest, answer: HelloResponse, nonce: bytes | None = None
) -> tuple[object, ...]:
    """What tells a connection from any other one, for a proof ``by`` one side or exchange; the rest
    as in `Secret.proof`."""
    return (
        "dledger hello",
        hello.version,
        by,
        "node" if hello.node_id else "client",
        hello.group,
        hello.node_id,
        hello.group_id,
        hello.nonce,
        answer.group,
        answer.node_id,
        answer.group_id,
        answer.nonce if nonce is None else nonce,
        *((answer.removed_by, *pack_list(answer.listed)) if by == Side.REMOVES.value else ()),
    )


class Secret:
    """The content of a secret file."""

    def __init__(self, key: bytes) -> None:
        self._begun = hmac.new(key, digestmod="sha256")
        """Its copies save the search for the hash function, which costs more than the proof."""

    def proof(
        self, side: Side, hello: HelloRequest, answer: HelloResponse, nonce: bytes | None = None
    ) -> bytes:
        """The proof of the given side. ``nonce``: the one of ``answer``, where that is still to be
        made with it."""
        made = self._begun.copy()
        made.update(pack(said(side.value, hello, answer, nonce)))
        return made.digest()

    def token(self, purpose: str) -> str:
        """A text that whoever has the secret can make, for one purpose; the secret does not follow
        from it."""
        made = self._begun.copy()
        made.update(pack(("dledger token", purpose)))
        return made.hexdigest()

    def is_proof(
        self, found: bytes, side: Side, hello: HelloRequest, answer: HelloResponse
    ) -> bool:
        """Whether it is the other side's, in a time that does not tell where it differs."""
        return hmac.compare_digest(found, self.proof(side, hello, answer))


def read_secret(path: str | os.PathLike[str], owner: int | None = None) -> Secret:
    """The secret in a file that this user alone can read, or ``owner`` alone.

    Raises:
        ConfigError: it is missing, empty or short, or others may read or have put it there; with
            the way out.
    """
    where = Path(path)
    how = f"make one with 'dledger secret create {where}'"
    key = _read_private("secret file", where, owner, how).strip()
    if not LEAST <= len(key) <= MOST:
        found = "is empty" if not key else f"has {len(key)} bytes"
        raise ConfigError(
            f"secret file {where} {found}; a secret has {LEAST} to {MOST}: make one with 'dledger "
            f"secret create FILE'"
        )
    return Secret(key)


def read_credentials(path: str | os.PathLike[str]) -> Credentials:
    """The credentials in a file that this user alone can read.

    Raises:
        ConfigError: as `read_secret`, or they are none.
    """
    where = Path(path)
    text = _read_private("credentials file", where, None, "")
    if len(text) > MOST:
        raise ConfigError(f"credentials file {where} has more than {MOST} bytes")
    try:
        return parse_credentials(text.decode(), str(where))
    except UnicodeDecodeError:
        raise ConfigError(f"credentials file {where} is not UTF-8") from None


def _read_private(what: str, where: Path, owner: int | None, if_missing: str) -> bytes:
    """The content of a file that ``owner`` alone can read, this user unless given; at most one byte
    more than `MOST`."""
    owner = os.geteuid() if owner is None else owner

    def not_opened(error: OSError) -> ConfigError:
        hint = f": {if_missing}" if if_missing and isinstance(error, FileNotFoundError) else ""
        return ConfigError(f"{what} {where}: {error.strerror}{hint}")

    _refuse_strange_link(what, where, owner)
    with told_as(not_opened, OSError):
        descriptor = os.open(where, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _refuse_strange_file(what, where, os.fstat(descriptor), owner)
        return os.read(descriptor, MOST + 1)
    finally:
        os.close(descriptor)


def _refuse_strange_link(what: str, where: Path, owner: int) -> None:
    status = None
    with suppressed():  # opening it says why
        status = where.lstat()
    if status is not None and stat.S_ISLNK(status.st_mode) and status.st_uid not in (owner, 0):
        raise ConfigError(
            f"{what} {where} is a symbolic link of user {status.st_uid}, who may let it "
            "point elsewhere: name the file itself"
        )


def _refuse_strange_file(what: str, where: Path, status: os.stat_result, owner: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{what} {where} is no regular file")
    if status.st_uid != owner:
        raise ConfigError(
            f"{what} {where} belongs to user {status.st_uid}, not to user {owner}: run this "
            f"as that user, or 'chown {owner} {where}'"
        )
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise ConfigError(
            f"{what} {where} may be used by others (mode {mode:04o}), so it is no secret: "
            f"make a new one, or 'chmod 600 {where}' if nobody has read it"
        )


def create_secret(path: str | os.PathLike[str]) -> None:
    """A new secret of 256 bits in a file with mode 0600. Of several programs that do so at once the
    first one wins, and none ever sees half a secret. Durable on return.

    Raises:
        FileExistsError: the file is there.
        OSError: it cannot be made.
    """
    from dledger.storage.disk.disk import RealDisk

    where = Path(path)
    draft = where.with_name(f".{where.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.write(descriptor, secrets.token_hex(32).encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.link(draft, where)
    finally:
        draft.unlink()
    RealDisk().fsync_dir(where.parent)
