"""Who may use the files that a node writes: their owner alone, whatever the umask is."""

from __future__ import annotations

import errno
import logging
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

logger = logging.getLogger(__name__)


class Modes(NamedTuple):
    """Of new files and directories; the umask may take bits away, and none of them is for others
    unless it says so."""

    file: int
    directory: int


OWNER: Final = Modes(0o600, 0o700)
UNIX_GROUP: Final = Modes(0o640, 0o750)
"""The directory's Unix group reads too: a setting of a node."""
UMASK: Final = Modes(0o666, 0o777)
"""Of files that are the user's and no node's: exports."""


def make_directories(path: Path, modes: Modes) -> None:
    """Make a directory and those above it, each with this mode. Raises OSError."""
    missing = [above for above in (path, *path.parents) if not above.exists()]
    for directory in reversed(missing):
        directory.mkdir(modes.directory, exist_ok=True)
    if not missing and not path.is_dir():
        raise FileExistsError(errno.EEXIST, "is a file", str(path))


def restrict(root: Path, modes: Modes) -> int:
    """Take rights beyond these modes from the files of this user's in a directory that has such
    rights itself, as release 0.1.0 left them; the number of files that changed.

    The directory comes last: it shields what is in it, and a start that was killed half way is
    made up for by the next one. Other users' files, links, and other file systems stay as they
    are.
    """
    try:
        status = root.stat()
    except OSError:
        return 0
    if not stat.S_IMODE(status.st_mode) & ~modes.directory & 0o777:
        return 0
    changed = 0
    for _, names, files, here in os.fwalk(root, topdown=False):
        changed += sum(_restrict(name, here, modes.file, status.st_dev) for name in files)
        changed += sum(_restrict(name, here, modes.directory, status.st_dev) for name in names)
    changed += _restrict(str(root), None, modes.directory, status.st_dev)
    if changed:
        logger.warning(
            "%s: %d files and directories could be used by other users; they cannot any more. The "
            "setting unix_group_reads lets a Unix group read them",
            root,
            changed,
        )
    return changed


def _restrict(name: str, parent: int | None, allowed: int, device: int) -> bool:
    """Whether the file had rights beyond those that are allowed, and has lost them."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if parent is None else os.O_NOFOLLOW)
    with suppress(OSError):  # a link, a file that has gone, or another user's
        descriptor = os.open(name, flags, dir_fd=parent)
        try:
            found = os.fstat(descriptor)
            is_kind = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
            mode = stat.S_IMODE(found.st_mode)
            if (
                is_kind
                and found.st_uid == os.geteuid()
                and found.st_dev == device
                and mode & ~allowed & 0o777
            ):
                os.fchmod(descriptor, mode & ~(0o777 & ~allowed))
                return True
        finally:
            os.close(descriptor)
    return False
