"""The directory of an embedded group: its files, and the locks of their writers.

::

    <path>/group.json      the group: identity, members, addresses, settings, users
    <path>/secret          proved by its nodes and clients to one another; its owner reads it
    <path>/.lock           held (flock) while a program starts, joins or ends the group
    <path>/.changing       held (flock) while a program changes which nodes there are
    <path>/.used           touched while clients use any node; its age is the time without use
    <path>/n0/node.pid     the process of node n0, which holds a flock on this file
    <path>/n0/node.log     the log lines of n0, bounded in size
    <path>/n0/...          n0's store

A lock dies with its process, so none is ever stale; a node runs exactly when its ``node.pid`` is
locked.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from dledger.embedded.groupfile import GroupFile
from dledger.embedded.process import ProcessId, reap
from dledger.errors import DLedgerError, PathError, Unavailable
from dledger.forks import check_lock, let_go, open_for_lock
from dledger.interrupts import is_interrupt, suppressed
from dledger.net.secret import create_secret
from dledger.net.user_directory import GROUP_SECRET
from dledger.types import NodeId

GROUP_FILE: Final = "group.json"
LOCK_FILE: Final = ".lock"
CHANGING_FILE: Final = ".changing"
USED_FILE: Final = ".used"
PID_FILE: Final = "node.pid"
LOG_FILE: Final = "node.log"
FAILED_FILE: Final = "start.failed"
FAILED_S: Final = 30.0
LOCK_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class NodeProcess:
    """A node's process as its node.pid tells. ``process`` is None before its first start."""

    running: bool
    process: ProcessId | None = None
    home: str = ""
    """The path of the group as that process knows it."""
    ending: bool = False
    """It drains and will be gone soon."""


@contextmanager
def path_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn the system's error of a path into `PathError` with the remedy."""
    try:
        yield
    except PathError:
        raise
    except OSError as error:
        if is_interrupt(error):
            raise
        way_out = {
            errno.ENOTDIR: "a part of it is a file; name a directory",
            errno.EEXIST: "it is a file; name a directory",
            errno.ELOOP: "a symbolic link is in its place; see who put it there, and remove it",
            errno.EACCES: "this user may not; change the permissions or name another directory",
            errno.EPERM: "this user may not; change the permissions or name another directory",
            errno.EROFS: "the file system is read-only; name another directory",
            errno.ENOSPC: "the disk is full; make room or name a directory on another disk",
            errno.EDQUOT: "the quota is used up; make room or name a directory on another disk",
        }.get(error.errno or 0, "name another directory")
        message = f"{path}: cannot {doing}: {os.strerror(error.errno or 0)}; {way_out}"
        raise PathError(message) from error


class Home:
    """The directory of one embedded group."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(os.path.expanduser(os.fspath(path))))  # noqa: PTH100, PTH111 - keeps symlinks
        self.group_file = self.path / GROUP_FILE

    def __str__(self) -> str:
        return str(self.path)

    def node_directory(self, node_id: NodeId) -> Path:
        return self.path / node_id

    def create(self) -> None:
        """Make the directory. Raises `PathError`."""
        if self.path.exists() and not self.path.is_dir():
            raise PathError(f"{self.path} is a file; name a directory for the group")
        with path_errors(self.path, "create the directory"):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def secret_file(self) -> Path:
        return self.path / GROUP_SECRET

    def make_secret(self) -> None:
        """A group of a release before secrets gets its own too. Call with the lock held. Raises
        `PathError`."""
        with path_errors(self.path, "make the group's secret"), suppress(FileExistsError):
            create_secret(self.secret_file)

    def make_node_directory(self, node_id: NodeId) -> None:
        """For the owner alone, with any former mode. Raises `PathError`."""
        directory = self.node_directory(node_id)
        with path_errors(directory, "create the node's directory"):
            directory.mkdir(mode=0o700, exist_ok=True)
            if directory.stat().st_mode & 0o077:
                directory.chmod(0o700)

    def delete_node_directory(self, node_id: NodeId) -> None:
        """Of a node that the group has removed. Raises `PathError`."""
        directory = self.node_directory(node_id)
        with path_errors(directory, "delete the node's directory"), suppress(FileNotFoundError):
            shutil.rmtree(directory)

    def place(self) -> str:
        """The identity of the directory, under any name; empty when it is gone."""
        with suppressed():
            stat = self.path.stat()
            return f"{stat.st_dev}:{stat.st_ino}"
        return ""

    def read(self) -> GroupFile | None:
        """The group of this directory, None when there is none yet.

        Raises:
            PathError: the path is a file, or may not be read.
            ConfigError: group.json is damaged or of a newer version.
        """
        try:
            content = self.group_file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError:
            with path_errors(self.path, "read group.json"):
                raise
        return GroupFile.decode(content, self.group_file)

    def write(self, file: GroupFile) -> GroupFile:
        """Put a new group.json in place of the old one; a crash leaves one or the other. Call with
        the lock held."""
        temporary = self.path / (GROUP_FILE + ".new")
        with path_errors(self.path, "write group.json"):
            temporary.unlink(missing_ok=True)
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                out.write(file.encode())
                out.flush()
                os.fsync(out.fileno())
            temporary.replace(self.group_file)
            directory = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        return file

    def lock(self, timeout_s: float = LOCK_TIMEOUT_S) -> AbstractContextManager[None]:
        """Hold the directory against all other programs that start, join or end the group.

        Raises:
            PathError: the lock file cannot be made, or the file system's locks keep no process out.
            Unavailable: another program holds it for longer than that.
        """
        return self._locked(
            LOCK_FILE,
            timeout_s,
            f"another program has been starting or ending this group for {timeout_s:.0f} s; wait "
            "for it, or end it",
        )

    def changing(self) -> AbstractContextManager[None]:
        """Be the only program that changes which nodes there are; others start, join and use the
        group meanwhile. Raises as `lock`, and at once."""
        text = "another program is changing the nodes of this group; wait for it, or end it"
        return self._locked(CHANGING_FILE, 0, text)

    @contextmanager
    def _locked(self, name: str, timeout_s: float, refusal: str) -> Iterator[None]:
        lock = self.path / name
        descriptor = self._open_lock(lock)
        try:
            deadline = time.monotonic() + timeout_s
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if is_interrupt(error):
                        raise
                    if time.monotonic() > deadline:
                        raise Unavailable(f"{self.path}: {refusal}") from None
                    time.sleep(0.01)
                except OSError:
                    with path_errors(
                        self.path, "lock the directory (its file system has no flock)"
                    ):
                        raise
            with path_errors(self.path, "check the lock"):
                check_lock(lock)
            yield
        finally:
            let_go(descriptor)

    def _open_lock(self, lock: Path) -> int:
        with path_errors(self.path, "create the lock"):
            descriptor = open_for_lock(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        status = os.fstat(descriptor)
        # made so that others could hold it for ever
        if status.st_mode & 0o077 and status.st_uid == os.geteuid():
            os.fchmod(descriptor, 0o600)
        return descriptor

    # -- nodes

    def node(self, node_id: NodeId) -> NodeProcess:
        """The known state of a node's process now."""
        path = self.node_directory(node_id) / PID_FILE
        descriptor = -1
        with suppressed():
            descriptor = open_for_lock(path, os.O_RDONLY)
        if descriptor < 0:
            return NodeProcess(False)
        running = True
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                running = False
            except BlockingIOError as error:
                if is_interrupt(error):
                    raise
            content = os.pread(descriptor, 65536, 0)
        finally:
            let_go(descriptor)
        try:
            data = json.loads(content)
            process = ProcessId.from_dict(data)
            return NodeProcess(running, process, str(data["home"]), bool(data["ending"]))
        except (KeyError, TypeError, ValueError):
            # it has its lock, but has not written its name yet, or ended cleanly
            return NodeProcess(running)

    def wait_gone(self, node_id: NodeId, process: ProcessId, timeout_s: float) -> bool:
        """Wait until a process of a node has ended and let go of everything; False when it has not
        by then.

        The lock is the last thing to go: a killed process can look like a zombie while threads of
        it still hold files and the port. Another process of the node may have it then.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            reap(process.pid)
            if not process.alive:
                state = self.node(node_id)
                if not state.running or state.process not in (None, process):
                    return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)

    def last_sign_of_life(self, node_id: NodeId) -> int:
        """When the node last touched its node.pid, in ns; opened anew each time, so that NFS asks
        its server."""
        with suppressed(), open(self.node_directory(node_id) / PID_FILE, "rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
        return 0

    def log_tail(self, node_id: NodeId, lines: int = 5) -> str:
        """The last words in a node's log."""
        with suppressed(), open(self.node_directory(node_id) / LOG_FILE, "rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - 4096))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
        return ""

    # -- nodes that cannot start

    def note_start(self, node_id: NodeId, failed: bool) -> None:
        """Remember whether the last start failed, so that not every caller tries again at once."""
        mark = self.node_directory(node_id) / FAILED_FILE
        with suppressed():
            if failed:
                mark.touch()
            else:
                mark.unlink(missing_ok=True)

    def failed_lately(self, node_id: NodeId) -> bool:
        """Whether the node could not start within the last `FAILED_S`; a mark of a wrong clock says
        nothing."""
        with suppressed():
            marked = (self.node_directory(node_id) / FAILED_FILE).stat().st_mtime
            return abs(time.time() - marked) < FAILED_S
        return False

    # -- use

    def touch_used(self) -> None:
        """The group is used now."""
        used = self.path / USED_FILE
        with suppressed():  # a read-only user does not count, but may read
            try:
                os.utime(used)
            except FileNotFoundError:
                used.touch(mode=0o600)

    def unused_s(self) -> float:
        """Seconds since the last use of any node; 0 when that is not known."""
        with suppressed():
            return max(0.0, time.time() - (self.path / USED_FILE).stat().st_mtime)
        return 0.0


def told_by(path: str) -> tuple[str, str]:
    """See `dledger.path_groups`. Not of a node whose peers its program names."""
    with suppress(DLedgerError):
        file = Home(path).read()
        if file is not None and not file.named:
            return file.group, file.bootstrap_servers
    return "", ""


class PidFile:
    """A node's hold on its node.pid: made by the node itself, gone with its process."""

    def __init__(self, home: Home, node_id: NodeId) -> None:
        self._home = home
        self._node_id = node_id
        home.make_node_directory(node_id)
        path = home.node_directory(node_id) / PID_FILE
        with path_errors(path, "make the file"):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            self._descriptor = os.open(path, flags, 0o600)
        self._path = path

    def acquire(self, ending_s: float, living_s: float = 1.0) -> bool:
        """Take the hold; False when another process of this node has it and keeps it.

        One that says it is ending is waited for ``ending_s`` seconds, any other ``living_s``: that
        one may have just been killed, or a probe may have looked at the lock.

        Raises:
            PathError: the file system's locks keep no other process out.
        """
        began = time.monotonic()
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                patience = ending_s if self._home.node(self._node_id).ending else living_s
                if time.monotonic() > began + patience:
                    return False
                time.sleep(0.01)
            else:
                with path_errors(self._path, "check the lock"):
                    check_lock(self._path)
                self.write(ending=False)
                return True

    def write(self, *, ending: bool) -> None:
        """Write the holder, and whether it is ending."""
        data = {**asdict(ProcessId.of(os.getpid())), "home": str(self._home), "ending": ending}
        content = json.dumps(data).encode()
        os.pwrite(self._descriptor, content, 0)
        os.ftruncate(self._descriptor, len(content))

    def touch(self) -> None:
        """A sign of life, for a host that cannot see this process."""
        with suppress(OSError):
            os.utime(self._descriptor)

    def clear(self) -> None:
        """The node ended cleanly: nothing of it lives anywhere."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
