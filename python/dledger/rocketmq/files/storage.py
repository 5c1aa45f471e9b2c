"""The place of a store's files: a local disk, or any file system of fsspec (``s3://``, ``hdfs://``,
``memory://`` ...).

Files are read in pieces and never mapped: another program may be writing them, and the bytes that
were checked must be the bytes that are taken out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from dledger.errors import ConfigError, PathError
from dledger.interrupts import is_interrupt

LOCAL: Final = ("file", "local")


@dataclass(frozen=True, slots=True)
class FolderListing:
    """The content of a folder."""

    files: dict[str, int] = field(default_factory=dict)
    """Name -> bytes."""
    folders: tuple[str, ...] = ()


NOTHING: Final = FolderListing()


@dataclass(frozen=True)
class Storage:
    """A store's root. Plain values: it travels to executors, where files are opened anew."""

    url: str
    """An absolute path, or a URL."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Of fsspec's file system: credentials and the like. Never part of a message."""

    @staticmethod
    def of(url: str, options: Mapping[str, Any] | None = None) -> Storage:
        """A path or URL as a user wrote it.

        Raises:
            ConfigError: there are options, and the files are local.
        """
        scheme, separator, rest = url.partition(":")
        if separator and scheme.lower() in LOCAL:
            url, separator = "/" + rest.lstrip("/"), ""
        is_url = bool(separator) and rest.startswith("//")
        if options and not is_url:
            raise ConfigError(
                f"option 'storageOptions' is for URLs of other file systems; {url!r} is a local "
                f"path"
            )
        return Storage(url.rstrip("/") if is_url else os.path.abspath(url), dict(options or {}))  # noqa: PTH100

    @property
    def is_local(self) -> bool:
        return "://" not in self.url

    def join(self, *parts: str) -> str:
        """The path or URL of something in it, for messages."""
        return "/".join((self.url, *filter(None, parts)))

    def list(self, folder: str = "") -> FolderListing | None:
        """The content of a folder of the store; None when there is no such folder.

        Raises:
            PathError: it cannot be read.
        """
        with self._named(folder):
            try:
                if self.is_local:
                    return self._list_local(self.join(folder))
                return self._list_url(folder)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def _list_local(self, path: str) -> FolderListing:
        with os.scandir(path) as found:
            entries = list(found)
        files = {}
        for one in entries:
            with suppress(FileNotFoundError):  # another program has just removed it
                if one.is_file():
                    files[one.name] = one.stat().st_size
        return FolderListing(files, tuple(sorted(one.name for one in entries if one.is_dir())))

    def _list_url(self, folder: str) -> FolderListing:
        system, path = self._system(folder)
        system.invalidate_cache(path)  # another program writes there
        found = system.ls(path, detail=True)
        if [(one["type"], one["name"].strip("/")) for one in found] == [("file", path.strip("/"))]:
            raise NotADirectoryError(path)
        named = [(one["name"].rstrip("/").rpartition("/")[2], one) for one in found]
        files = {name: int(one["size"] or 0) for name, one in named if one["type"] == "file"}
        folders = sorted(name for name, one in named if one["type"] == "directory")
        return FolderListing(files, tuple(folders))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file, all that there are from ``offset`` on up to ``length``.

        Raises:
            PathError: it cannot be read, or is gone.
        """
        with self._named(path):
            if not self.is_local:
                system, whole = self._system(path)
                end = None if length is None else offset + length
                data: bytes = system.cat_file(whole, start=offset, end=end)
                return data
            with open(self.join(path), "rb", buffering=0) as file:
                if length is None:
                    file.seek(offset)
                    return file.readall()
                parts = []
                while length and (part := os.pread(file.fileno(), length, offset)):
                    parts.append(part)
                    offset, length = offset + len(part), length - len(part)
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def find(self, path: str, length: int) -> bytes | None:
        """A file's first bytes, at most ``length``; None when there is no file, or an empty one.

        Raises:
            PathError: it cannot be read.
        """
        if not self.size(path):
            return None
        try:
            return self.read(path, 0, length)
        except PathError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # removed since
                return None
            raise

    def read_exactly(self, path: str, start: int, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset`` on of a log, out of a file that begins at ``start`` in
        it.

        Raises:
            PathError: the file has less than that by now, or is gone.
        """
        data = self.read(path, offset - start, length)
        if len(data) != length:
            raise PathError(f"{self.join(path)} has become shorter while it was read")
        return data

    def size(self, path: str) -> int | None:
        """Bytes of a file; None when there is none.

        Raises:
            PathError: that cannot be told.
        """
        with self._named(path):
            try:
                if self.is_local:
                    return os.stat(self.join(path)).st_size  # noqa: PTH116
                system, whole = self._system(path)
                system.invalidate_cache()
                return int(system.size(whole))
            except FileNotFoundError:
                return None

    def _system(self, path: str) -> tuple[Any, str]:
        """fsspec's file system, which it keeps for the process, and a path in it."""
        try:
            from fsspec.core import url_to_fs
        except ModuleNotFoundError as error:
            raise PathError(
                f"{self.url} cannot be reached without fsspec: pip install 'dledger[rocketmq]'"
            ) from error
        try:
            system, root = url_to_fs(self.url, **self.options)
        # an unknown protocol, or one whose package is missing
        except (ImportError, ValueError) as error:
            raise PathError(f"{self.url} cannot be reached: {error}") from error
        return system, "/".join(filter(None, (str(root).rstrip("/"), path)))

    @contextmanager
    def _named(self, path: str) -> Iterator[None]:
        try:
            yield
        except PathError:
            raise
        except Exception as error:  # a URL's file system has errors of its own
            if self.is_local and (not isinstance(error, OSError) or is_interrupt(error)):
                raise
            what = f"cannot be read: {str(error) or type(error).__name__}"
            if isinstance(error, FileNotFoundError):
                what = "is gone or never was"
            raise PathError(f"{self.join(path)} {what}") from error
