"""Where backups lie: a directory of this machine, or any file system of fsspec."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

from dledger.errors import ConfigError, PathError
from dledger.storage.disk.disk import RealDisk
from dledger.storage.disk.small_files import sync_names_above

HOST: Final = RealDisk()
LOCAL: Final = ("file", "local")
PART: Final = ".part"
"""Behind the name of a file that is not whole yet."""
WAYS_OUT: Final = {
    errno.ENOSPC: "there is no room: make some, or drop old backups (--keep); what was copied is "
    "not copied again",
    errno.EDQUOT: "the quota is used up: raise it, or drop old backups (--keep)",
    errno.EROFS: "it is read-only: name another place",
    errno.EACCES: "this user may not: change the permissions, or name another place",
    errno.EPERM: "this user may not: change the permissions, or name another place",
    errno.ENOTDIR: "a part of it is a file: name another place",
    errno.ENOENT: "it is not there: 'dledger backup verify' tells what else is missing",
}


class Target(Protocol):
    """A place of files by ``/``-separated names.

    Raises:
        PathError: it fails; the message has the file and the way out.
    """

    url: str

    def sizes(self, folder: str) -> dict[str, int]:
        """Every file below a folder, by its name there, with its bytes; none where there is no such
        folder."""

    def read(self, name: str) -> bytes:
        """A whole file."""

    def write(self, name: str, data: bytes) -> None:
        """Put a whole file there. It has its name when all of it is durable, as far as the place
        can do that."""

    def remove(self, *names: str) -> None:
        """Files that may be gone already. They are gone for good on return, as far as the place can
        do that."""

    def remove_rests(self, before_s: float) -> None:
        """What programs have left of files that they were writing when they were killed, before
        this time in seconds since 1970."""


def open_target(url: str) -> Target:
    """The place that a user names.

    Raises:
        ConfigError: nothing is installed for such a URL.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return LocalTarget(url)
    if scheme.lower() in LOCAL:
        return LocalTarget("/" + rest.lstrip("/"))
    try:
        import fsspec
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{url}: URLs of other file systems need fsspec: pip install 'dledger[backup]', and "
            "the package for that kind of URL, as s3fs"
        ) from error
    try:
        system, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{url}: {error}") from error
    return FsspecTarget(url, system, root=root)


@contextmanager
def named(where: str) -> Iterator[None]:
    """Turn an error of a file system into `PathError` with the way out."""
    try:
        yield
    except PathError:
        raise
    except Exception as error:  # fsspec's systems have errors of their own, and libraries below
        code = error.errno if isinstance(error, OSError) else None
        if isinstance(error, FileNotFoundError):
            code = errno.ENOENT
        way_out = WAYS_OUT.get(code or 0, "see what is wrong there, then run the command again")
        raise PathError(f"{where}: {error or type(error).__name__}; {way_out}") from error


class LocalTarget:
    """A directory; see `Target`."""

    def __init__(self, path: str) -> None:
        self._root = Path(path).expanduser().absolute()
        self.url = str(self._root)
        self._durable: set[Path] = set()
        """Directories whose names are on the disk."""

    def sizes(self, folder: str) -> dict[str, int]:
        top = self._root / folder
        found: dict[str, int] = {}
        with named(str(top)):
            for directory, _, files in os.walk(top, onerror=_refuse):
                for name in files:
                    path = Path(directory, name)
                    with suppress(FileNotFoundError):  # another backup has just removed it
                        found[path.relative_to(top).as_posix()] = path.stat().st_size
        return {name: size for name, size in found.items() if not name.endswith(PART)}

    def read(self, name: str) -> bytes:
        path = self._root / name
        with named(str(path)):
            return path.read_bytes()

    def write(self, name: str, data: bytes) -> None:
        path = self._root / name
        fresh = path.with_name(f"{path.name}.{uuid.uuid4().hex}{PART}")
        with named(str(path)):
            self._make_directories(path.parent)
            try:
                with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                    out.write(data)
                    out.flush()
                    os.fsync(out.fileno())
                fresh.replace(path)
            except BaseException:
                fresh.unlink(missing_ok=True)
                raise
            HOST.fsync_dir(path.parent)

    def _make_directories(self, path: Path) -> None:
        """With durable names, for the user alone: records are in them. Those that are there may be
        of a backup that was killed before it came to syncing them."""
        missing = [above for above in (path, *path.parents) if not above.exists()]
        for directory in reversed(missing):
            directory.mkdir(0o700, exist_ok=True)
        self._durable.difference_update(missing)
        if path not in self._durable:
            sync_names_above(HOST, path, self._durable)

    def remove(self, *names: str) -> None:
        for name in names:
            path = self._root / name
            with named(str(path)):
                path.unlink(missing_ok=True)
        for folder in {(self._root / name).parent for name in names}:
            with named(str(folder)), suppress(FileNotFoundError):
                HOST.fsync_dir(folder)

    def remove_rests(self, before_s: float) -> None:
        with named(self.url):
            for path in self._root.rglob(f"*{PART}"):
                with suppress(FileNotFoundError):  # it has its name, or another backup removed it
                    if path.stat().st_mtime < before_s:
                        path.unlink()


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


class FsspecTarget:
    """A place of fsspec; see `Target`."""

    def __init__(self, url: str, system: Any, *, root: str) -> None:
        self.url = url.rstrip("/")
        self._system = system
        self._root = root.rstrip("/")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def sizes(self, folder: str) -> dict[str, int]:
        top = self._path(folder)
        with named(f"{self.url}/{folder}"):
            self._system.invalidate_cache()  # other programs write there
            try:
                found = self._system.find(top, detail=True)
            except FileNotFoundError:
                return {}
        skipped = len(top.strip("/")) + 1
        return {path.strip("/")[skipped:]: int(one["size"] or 0) for path, one in found.items()}

    def read(self, name: str) -> bytes:
        with named(f"{self.url}/{name}"):
            data: bytes = self._system.cat_file(self._path(name))
            return data

    def write(self, name: str, data: bytes) -> None:
        path = self._path(name)
        with named(f"{self.url}/{name}"):
            self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
            try:
                self._system.pipe_file(path, data)
            except BaseException:
                with suppress(Exception):  # the first error is to be told
                    self._system.rm_file(path)
                raise

    def remove(self, *names: str) -> None:
        for name in names:
            with named(f"{self.url}/{name}"), suppress(FileNotFoundError):
                self._system.rm_file(self._path(name))

    def remove_rests(self, before_s: float) -> None:
        """These write in place, or show a file when it is whole."""
