"""A whole group in one directory: `EmbeddedGroup` under the caller's control, `connect_path` for
all other uses."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Final

from dledger import forks
from dledger.config import nearest
from dledger.embedded.former import DRAIN_TIMEOUT_S
from dledger.embedded.groupfile import GroupFile, User
from dledger.embedded.home import LOG_FILE, Home
from dledger.embedded.probe import ask_all, wait_for_leader
from dledger.embedded.process import ProcessId, application_pid, is_descendant
from dledger.embedded.settings import check_replicas, check_settings, tls_of
from dledger.embedded.start import (
    Wish,
    join_group,
    start_nodes,
    stop_group,
    stop_nodes,
)
from dledger.errors import ConfigError, PathError, Unavailable
from dledger.types import NodeId, Role

logger = logging.getLogger("dledger.embedded")

LEADER_TIMEOUT_S: Final = 30.0
_ELECTION_S: Final = 3.0
"""How long an election may take before the nodes are looked at again."""
_holds: Counter[tuple[int, str, str]] = Counter()
"""How many `EmbeddedGroup` hold a group: of this process (`forks.generation`), in this directory,
of this identity. A directory that was deleted and made anew has another one."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One node as it is now. ``pid`` and ``role`` are None while it does not run or does not
    answer."""

    pid: int | None
    address: str
    role: Role | None


class EmbeddedGroup:
    """A group of nodes on this machine, each its own process, with all its files in ``path``.

    A second user of the same path, in this or another program, joins the group that runs. Nodes
    that are missing are started, so a group that was killed comes back with everything that was
    acknowledged. As a context manager, ends the group on exit unless another program holds it; a
    program that ends without that leaves the group to its idle timeout.

    Args:
        path: a directory on a local disk; made when missing. All files of the group are in it.
        replicas: 1, 3, 5 or 7; 3 for a new group, and what it has for an existing one.
        settings: fields of `GroupConfig` and `NodeConfig` by name, ``idle_timeout_ms`` (60,000) and
            ``advertise_host`` (loopback).

    Raises:
        PathError: the path is a file, not writable, on a full disk, or in use by another host.
        ConfigError, UnknownOption: a setting cannot be, or differs from the existing group's.
        Unavailable: the nodes did not start or elect a leader; the message has their last words.
    """

    def __init__(
        self, path: str | os.PathLike[str], replicas: int | None = None, **settings: Any
    ) -> None:
        self._home = Home(path)
        user = User(ProcessId.of(os.getpid()), holds=True)
        self._wish = _whole_group(Wish(user, settings, replicas))
        self._held = False
        self._born = forks.generation
        self._group = ""
        self.start()

    def start(self) -> None:
        """Join the group, starting missing nodes, and wait until it has a leader."""
        forks.check_born_here(self._born, repr(self))
        group = _join_and_wait(self._home, self._wish).group
        if self._held and group != self._group:  # deleted meanwhile
            self._let_go()
        self._group = group
        if not self._held:
            _holds[self._key] += 1
            self._held = True

    @property
    def _key(self) -> tuple[int, str, str]:
        return self._born, str(self._home), self._group

    def _let_go(self) -> None:
        if self._held:
            self._held = False
            _holds[self._key] -= 1

    @property
    def path(self) -> str:
        return str(self._home)

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,…`` of all nodes, for `Client` and ``dledger.bootstrap.servers``."""
        return self._file().bootstrap_servers

    @property
    def leader(self) -> NodeId:
        """The node that leads now; waits while an election is on.

        Raises:
            Unavailable: there is no leader, e.g. because too few nodes run.
        """
        file = self._file()
        patience_s = LEADER_TIMEOUT_S if self._quorum_runs(file) else 0
        leader = wait_for_leader(file.addresses, file.group, patience_s, tls_of(file.settings))
        if leader is None:
            raise Unavailable(f"{self._home}: no leader; {self._describe(file)}")
        return leader

    @property
    def nodes(self) -> dict[NodeId, NodeInfo]:
        """Every node, as it is now."""
        return describe_nodes(self._home, self._file())

    def kill(self, node_id: NodeId | str) -> None:
        """SIGKILL a node, as a crash would. Returns when it is gone; nothing when it was not
        running."""
        node = self._known(node_id)
        process = self._home.node(node).process
        if process is None or not process.signal(signal.SIGKILL):
            return
        if not self._home.wait_gone(node, process, DRAIN_TIMEOUT_S):
            raise Unavailable(
                f"{self._home}: process {process.pid} of {node_id} does not end, even by SIGKILL"
            )

    def restart(self, node_id: NodeId | str) -> None:
        """Start a node again on its files, after a graceful end if it runs. Returns when it serves.

        Raises:
            DLedgerError: the error that kept the node from starting.
        """
        node = self._known(node_id)
        with self._home.lock():
            stop_nodes(self._home, [node])
            start_nodes(self._home, self._file(), [node], alone=True)

    def stop(self, *, force: bool = False) -> None:
        """End the group gracefully, unless another program holds it; then only give up this
        program's hold.

        In a forked child nothing: the hold is the parent's. Nor where the directory has another
        group by now.

        Args:
            force: end it even so. The other program finds it again when it next asks for the path.
        """
        if self._born != forks.generation:
            return
        self._let_go()
        if not self._home.path.is_dir():
            return  # deleted: its nodes end by themselves
        with self._home.lock():
            file = self._home.read()
            if file is None or file.group != self._group:
                return
            own = self._wish.user.process
            if not _holds[self._key]:
                file = self._home.write(
                    replace(file, users=tuple(u for u in file.live_users() if u.process != own))
                )
            if force or not any(_counts(user, own) for user in file.live_users()):
                stop_group(self._home, file)

    def __enter__(self) -> EmbeddedGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"EmbeddedGroup({str(self._home)!r})"

    def _file(self) -> GroupFile:
        file = self._home.read()
        if file is None:
            raise PathError(
                f"{self._home}: group.json is gone; make the group anew with EmbeddedGroup"
            )
        return file

    def _known(self, node_id: NodeId | str) -> NodeId:
        nodes = self._file().local
        if node_id not in nodes:
            hint = nearest(node_id, list(nodes))
            raise ConfigError(
                f"{self._home} has no node {node_id!r}{hint}; it has {', '.join(nodes)}"
            )
        return NodeId(node_id)

    def _quorum_runs(self, file: GroupFile) -> bool:
        running = sum(self._home.node(node).running for node in file.local)
        return 2 * (running + len(file.elsewhere)) > len(file.members)

    def _describe(self, file: GroupFile) -> str:
        down = [node for node in file.local if not self._home.node(node).running]
        return (
            f"nodes that do not run: {', '.join(down) or 'none'}; restart() them, or see "
            f"their {LOG_FILE}"
        )


def _whole_group(wish: Wish) -> Wish:
    """``wish``, whose replicas and settings may be.

    Raises:
        ConfigError, UnknownOption: they may not.
    """
    if wish.replicas is not None:
        check_replicas(wish.replicas)
    if "secret_file" in wish.settings:
        raise ConfigError(
            "setting 'secret_file' is decided by the group itself (its directory has one); leave "
            "it out"
        )
    check_settings(wish.settings)
    return wish


def _counts(user: User, own: ProcessId) -> bool:
    """Whether a user keeps the group from being ended by ``own``: not the Spark driver that ``own``
    started."""
    return user.holds or not is_descendant(user.process.pid, own.pid)


def describe_nodes(home: Home, file: GroupFile) -> dict[NodeId, NodeInfo]:
    """The nodes of a directory with their processes and roles; starts nothing."""
    roles = ask_all(file.addresses, file.group, tls_of(file.settings))
    found = {}
    for node, address in file.addresses.items():
        state = home.node(node)
        pid = state.process.pid if state.running and state.process else None
        found[node] = NodeInfo(pid, address, roles.get(node))
    return found


def _join_and_wait(home: Home, wish: Wish) -> GroupFile:
    """Join, and wait for a leader; a node that dies meanwhile is started again, also one that was
    killed just before and still held its lock when it was looked at.

    Raises:
        Unavailable: there is no leader after `LEADER_TIMEOUT_S`.
    """
    deadline = time.monotonic() + LEADER_TIMEOUT_S
    while True:
        file, _ = join_group(home, wish)
        leader = wait_for_leader(file.addresses, file.group, _ELECTION_S, tls_of(file.settings))
        is_late = time.monotonic() > deadline
        if leader and (is_late or not _has_died(home, file)):
            return file
        if is_late:
            if file.has_moved:
                raise Unavailable(
                    f"{home}: the group has moved to {file.bootstrap_servers}, where no node leads"
                )
            words = "; ".join(f"{node}: {home.log_tail(node, 1)}" for node in file.local)
            raise Unavailable(f"{home}: its nodes elect no leader; their logs end with {words}")


def _has_died(home: Home, file: GroupFile) -> bool:
    """Whether a node does not run that was not among those which could not be started."""
    return any(not home.node(node).running and not home.failed_lately(node) for node in file.local)


def connect_path(
    path: str | os.PathLike[str],
    replicas: int | None = None,
    *,
    create: bool = True,
    **settings: Any,
) -> str:
    """The bootstrap servers of the group in ``path``, started where it does not run.

    This is how Spark's ``.load("/data/log")`` finds its group. When all nodes run it only looks at
    files. The group stays for as long as the calling application lives (in a Spark worker: the
    driver's Java process) or uses it.

    Args:
        path: the group's directory.
        replicas: 1, 3, 5 or 7; 3 for a new group, and what it has for an existing one.
        create: make a group where there is none; otherwise that is a `PathError`.
        settings: as for `EmbeddedGroup`.

    Raises:
        PathError, ConfigError, UnknownOption, Unavailable: as `EmbeddedGroup`.
    """
    home = Home(path)
    user = User(ProcessId.of(application_pid()), holds=False)
    wish = _whole_group(Wish(user, settings, replicas, create))
    file, started = join_group(home, wish)
    if started:
        file = _join_and_wait(home, wish)
    return file.bootstrap_servers


def read_group(path: str | os.PathLike[str]) -> tuple[Home, GroupFile]:
    """The group of a directory as its files tell, running or not.

    Raises:
        PathError: there is none.
    """
    home = Home(path)
    file = home.read()
    if file is None:
        raise PathError(f"{home}: there is no group in this directory (no group.json)")
    return home, file
