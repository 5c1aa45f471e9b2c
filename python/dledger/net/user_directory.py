"""The directory of dledger for one Unix user: ``~/.dledger``, which that user alone can enter.

::

    secret          shared by the nodes that this user runs on this machine
    groups/<name>   the directory of each embedded group of this user, and its secret

The home is that of the system's list of users, not that of HOME; ``DLEDGER_USER_DIRECTORY`` names
another directory.
"""

from __future__ import annotations

import os
import pwd
import stat
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from dledger.config import check_name
from dledger.errors import ConfigError
from dledger.interrupts import is_interrupt, suppressed, told_as
from dledger.net.secret import Secret, create_secret, read_secret

GROUP_SECRET: Final = "secret"
"""The file with an embedded group's secret, in the group's directory."""
VARIABLE: Final = "DLEDGER_USER_DIRECTORY"
_OTHERWISE: Final = f"set {VARIABLE} to a directory of this user's"
_here: dict[str, Path] = {}
"""Groups that this process has met, for a user without a directory."""
_read: dict[str, tuple[Path, tuple[int, ...], Secret]] = {}
"""Secrets as they were read, with what would show that the file has changed: each connection wants
one."""


def user_directory() -> Path:
    """The directory, made if it is missing.

    Raises:
        ConfigError: there is no such place, or others may enter it; with the way out.
    """
    path = _place()
    with _told(f"{path}, where dledger keeps what is this user's"):
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise ConfigError(
            f"{path} is no directory of user {os.geteuid()}'s (it belongs to user "
            f"{status.st_uid}); {_OTHERWISE}"
        )
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise ConfigError(f"{path} may be entered by others (mode {mode:04o}): 'chmod 700 {path}'")
    return path


def _told(what: object) -> AbstractContextManager[None]:
    """An error of the system as one of ``what``."""
    return told_as(lambda error: ConfigError(f"{what}: {error.strerror}; {_OTHERWISE}"), OSError)


def _place() -> Path:
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).absolute()
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir, ".dledger")
    except KeyError:
        raise ConfigError(f"user {os.geteuid()} has no home directory; {_OTHERWISE}") from None


def note_group(group: str, directory: Path) -> None:
    """Remember where an embedded group lies, for every program of this user's that meets its nodes.

    Raises:
        ConfigError: it cannot be kept; programs must then be told the group's secret file.
    """
    _here[group] = directory
    entry = user_directory() / "groups" / group
    with _told(entry):
        entry.parent.mkdir(mode=0o700, exist_ok=True)
        if entry.is_file() and entry.read_bytes() == os.fsencode(directory):
            return
        draft = entry.with_name(f".{group}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        with open(draft, "xb", opener=partial(os.open, mode=0o600)) as out:
            out.write(os.fsencode(directory))
        draft.replace(entry)


def forget_group(group: str) -> None:
    """The group is gone for good."""
    _here.pop(group, None)
    with suppress(OSError, ConfigError):
        (_place() / "groups" / group).unlink()


def group_secret(group: str) -> Secret | None:
    """The secret of an embedded group of this user's; None where none is known. Root may have that
    of any user.

    Raises:
        ConfigError: there is one, and it is no secret any more.
    """
    if (known := _read.get(group)) is not None:
        with suppressed():
            if _state(known[0].stat()) == known[1]:
                return known[2]
        _read.pop(group, None)
    try:
        directory = _here.get(group)
        if directory is None:
            check_name("group", group)
            directory = Path(os.fsdecode((user_directory() / "groups" / group).read_bytes()))
        path = directory / GROUP_SECRET
        status = path.stat()
    except (OSError, ConfigError) as error:
        if is_interrupt(error):
            raise
        return None
    secret = read_secret(path, None if os.geteuid() else status.st_uid)
    _read[group] = (path, _state(status), secret)
    return secret


def _state(status: os.stat_result) -> tuple[int, ...]:
    """The fields of a file that change when its content, its owner or its mode do."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def user_secret() -> Path:
    """The file with this user's secret, made by the first program that wants it.

    Raises:
        ConfigError: it cannot be kept.
    """
    path = user_directory() / "secret"
    if not path.exists():
        with _told(path), suppress(FileExistsError):  # another node was first
            create_secret(path)
    return path
