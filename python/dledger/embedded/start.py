"""Bringing the nodes of a directory up: find those that live, start those that do not, agree on
ports."""

from __future__ import annotations

import logging
import os
import signal
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dledger import errors
from dledger.embedded.former import DRAIN_TIMEOUT_S, refuse_other_host, settle
from dledger.embedded.groupfile import GroupFile, User
from dledger.embedded.home import Home, path_errors
from dledger.embedded.ports import free_ports
from dledger.embedded.probe import wait_for_leader
from dledger.embedded.settings import DEFAULTS, REPLICAS_DEFAULT, check_join, tls_of
from dledger.embedded.spawning import Killed, spawn_nodes
from dledger.errors import ConfigError, DLedgerError, NodeRemoved, PathError, PortInUse
from dledger.net.address import split_address
from dledger.net.user_directory import note_group
from dledger.types import NodeId

logger = logging.getLogger("dledger.embedded")

PORT_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Wish:
    """A caller's request to a group that may or may not be there yet."""

    user: User
    settings: dict[str, Any]
    replicas: int | None = None
    create: bool = True
    peers: dict[NodeId, str] | None = None
    """The third way: this directory holds one node, ``local``, of a group whose others run
    elsewhere."""
    local: NodeId | None = None
    group: str | None = None


def join_group(home: Home, wish: Wish) -> tuple[GroupFile, bool]:
    """Make sure that every node of the directory runs; the group, and whether any node had to be
    started.

    Raises:
        PathError: the directory cannot be used, or another host runs the group.
        ConfigError: the group that is there is not the one that was asked for.
        Unavailable: nodes could not be started; the message has their last words.
    """
    if wish.create:
        home.create()
    file = home.read()
    if file is not None and _nothing_to_do(home, file, wish):
        _note(home, file)
        return file, False
    if file is None and not wish.create:
        raise PathError(
            f"{home}: there is no group in this directory; name another one, or write to it first"
        )
    with home.lock():
        file = home.read()
        file = _new_group(home, wish) if file is None else _existing_group(home, file, wish)
        if file.local and not file.named and not home.secret_file.exists():
            _end_old_release(home, file, wish)
            home.make_secret()
        file = _write_if_changed(home, file.with_user(wish.user))
        _note(home, file)
        missing = [node for node in file.local if not home.node(node).running]
        if not wish.user.holds:
            missing = _without_hopeless(home, file, missing)
        return start_nodes(home, file, missing), bool(missing)


def _note(home: Home, file: GroupFile) -> None:
    """Let all programs of this user's find the group's secret by its name."""
    if file.named:
        return
    try:
        note_group(file.group, home.path)
    except ConfigError as error:
        logger.warning("other programs must be told secret_file=%s: %s", home.secret_file, error)


def _end_old_release(home: Home, file: GroupFile, wish: Wish) -> None:
    """A group without a secret is of release 0.1.0. Its nodes understand no message of today."""
    running = [node for node in file.local if home.node(node).running]
    others = [user.process.pid for user in file.live_users() if user.process != wish.user.process]
    if running and others:
        raise errors.ConfigError(
            f"{home}: nodes of dledger 0.1.0 run here, and programs of that release use them: end "
            f"these first (processes {', '.join(map(str, others))})"
        )
    stop_nodes(home, running)


def _nothing_to_do(home: Home, file: GroupFile, wish: Wish) -> bool:
    """The usual case, without a lock: all nodes run, this program is known, and it asks for nothing
    else."""
    if not file.named and not home.secret_file.exists():
        return False
    states = {node: home.node(node) for node in file.local}
    wanting = [
        node
        for node, n in states.items()
        if not (
            n.running and not n.ending and n.process and n.process.alive and n.home == str(home)
        )
    ]
    if wanting and (wish.user.holds or _without_hopeless(home, file, wanting)):
        return False
    check_join(file, wish.replicas, wish.settings, running=True, where=str(home))
    known = any(u.process == wish.user.process and u.holds == wish.user.holds for u in file.users)
    idle_ms = file.settings.get("idle_timeout_ms", DEFAULTS["idle_timeout_ms"])
    live = wish.settings.get("idle_timeout_ms", idle_ms) == idle_ms
    same = wish.peers is None or wish.peers == file.addresses
    return live and same and (known or not os.access(home.group_file, os.W_OK))


def _without_hopeless(home: Home, file: GroupFile, missing: list[NodeId]) -> list[NodeId]:
    """Which of the missing nodes to start. One that just failed to start, e.g. because its store is
    damaged, would cost every `connect_path` a try; where the others are a quorum it is left alone
    for a while."""
    hopeful = [node for node in missing if not home.failed_lately(node)]
    others = len(file.local if file.named else file.members) - len(missing)
    return hopeful if 2 * others > len(file.members) else missing


def _new_group(home: Home, wish: Wish) -> GroupFile:
    members: tuple[NodeId, ...]
    local: tuple[NodeId, ...]
    if wish.peers is not None and wish.local is not None:
        members, local, addresses = tuple(wish.peers), (wish.local,), dict(wish.peers)
    else:
        members = tuple(NodeId(f"n{i}") for i in range(wish.replicas or REPLICAS_DEFAULT))
        local = members
        addresses = pick_addresses(wish.settings, members)
    _check_free_space(home, wish.settings)
    return GroupFile(
        group=wish.group or uuid.uuid4().hex,
        members=members,
        addresses=addresses,
        local=local,
        settings=wish.settings,
        named=wish.peers is not None,
        place=home.place(),
    )


def _check_free_space(home: Home, settings: dict[str, Any]) -> None:
    """A new group on a full disk would refuse its first append; say so at once."""
    reserve = settings.get("disk_reserve_bytes", DEFAULTS["disk_reserve_bytes"])
    with path_errors(home.path, "look at the disk"):
        disk = os.statvfs(home.path)
    free = disk.f_bavail * disk.f_frsize
    if free < reserve:
        raise PathError(
            f"{home}: the disk is full: {free:,} bytes free, {reserve:,} must stay free "
            "(disk_reserve_bytes); make room or name a directory on another disk",
        )


def _existing_group(home: Home, file: GroupFile, wish: Wish) -> GroupFile:
    """Compare the group with the request, and take up settings that may change."""
    refuse_other_host(home, file.local)
    for node in file.local:
        settle(home, node)
    running = file.has_moved or any(home.node(node).running for node in file.local)
    check_join(file, wish.replicas, wish.settings, running, str(home))
    whoever_is_there = wish.peers is None and not wish.user.holds  # connect_path asks for no kind
    if not whoever_is_there and (
        (wish.peers is not None) != file.named or (wish.local not in (None, *file.local))
    ):
        raise errors.ConfigError(
            f"{home} holds {'one node' if file.named else 'a whole group'} "
            f"({', '.join(file.local)}), which is not what is asked for; name another directory"
        )
    if wish.group and wish.group != file.group:
        raise errors.WrongGroup(
            f"{home} belongs to group {file.group!r}, not {wish.group!r}; name another directory"
        )
    settings = {**file.settings, **wish.settings}
    addresses = file.addresses
    copied = file.place != home.place() and not running  # the original may be using those ports
    if wish.peers is not None:
        if tuple(wish.peers) != file.members:
            raise errors.ConfigError(
                f"{home}: the group's nodes are {', '.join(file.members)}, not "
                f"{', '.join(wish.peers)}; name the same "
                "nodes in the same order (their addresses may change), or another directory"
            )
        addresses = dict(wish.peers)
    elif file.local and (
        copied or _host_of(settings) != split_address(addresses[file.local[0]])[0]
    ):
        addresses = addresses | pick_addresses(settings, file.local)
    return replace(file, settings=settings, addresses=addresses, place=home.place())


def _host_of(settings: dict[str, Any]) -> str:
    return str(settings.get("advertise_host") or "127.0.0.1")


def pick_addresses(
    settings: dict[str, Any], nodes: Sequence[NodeId], kept: Iterable[str] = ()
) -> dict[NodeId, str]:
    """New addresses for ``nodes``, beside those that others keep."""
    host = _host_of(settings)
    taken = {split_address(address)[1] for address in kept}
    ports = free_ports(str(settings.get("host", host)), len(nodes), taken)
    shown = f"[{host}]" if ":" in host else host
    return {node: f"{shown}:{port}" for node, port in zip(nodes, ports, strict=True)}


def _write_if_changed(home: Home, file: GroupFile) -> GroupFile:
    present = home.read()
    if present == file:
        return file
    try:
        return home.write(file)
    except PathError:
        # Another user's group: it may be used, but not changed.
        if present is not None and all(home.node(node).running for node in present.local):
            return present
        raise


def start_nodes(
    home: Home, file: GroupFile, nodes: list[NodeId], *, alone: bool = False
) -> GroupFile:
    """Start these nodes at the same time and wait until each serves or says why not. Call with the
    lock held.

    A node whose port was taken by another process gets another one, and one that is killed
    meanwhile is started again. Nodes that cannot start are an error only when there are too few
    others for a quorum, or with ``alone``.
    """
    failures: dict[NodeId, DLedgerError] = {}
    waiting = list(nodes)
    for _ in range(PORT_TRIES):
        results = _spawn_again(home, waiting)
        waiting = [
            node
            for node, error in results.items()
            if isinstance(error, PortInUse) and not file.named
        ]
        failures.update({n: e for n, e in results.items() if e is not None and n not in waiting})
        if not waiting:
            break
        kept = {node: address for node, address in file.addresses.items() if node not in waiting}
        file = home.write(
            replace(file, addresses=kept | pick_addresses(file.settings, waiting, kept.values()))
        )
    failures.update(
        {node: PortInUse(f"{file.addresses[node]}: no port could be kept") for node in waiting}
    )
    for node in nodes:
        home.note_start(node, failed=node in failures)
    for node, error in failures.items():
        logger.warning("node %s of %s did not start: %s", node, home, error)
    for node in [node for node, error in failures.items() if isinstance(error, NodeRemoved)]:
        del failures[node]
        file = drop_node(home, file, node)
    for node in failures.keys() & set(file.joining):
        if not alone:  # the group does not count on it
            del failures[node]
    counted = [node for node in file.members if node not in file.joining]
    here = file.local if file.named else counted
    few = 2 * (len(here) - len(failures)) <= len(here)
    if failures and (few or alone or file.named):
        raise next(iter(failures.values()))
    return file


def _spawn_again(home: Home, nodes: list[NodeId]) -> dict[NodeId, DLedgerError | None]:
    """`spawn_nodes`, and once more for those that were killed: that says nothing of their
    stores."""
    results = spawn_nodes(home, nodes)
    killed = [node for node, error in results.items() if isinstance(error, Killed)]
    return results | spawn_nodes(home, killed)


def drop_node(home: Home, file: GroupFile, node: NodeId) -> GroupFile:
    """Forget a node that the group has removed. Call with the lock held."""
    stop_nodes(home, [node])
    return retire_nodes(home, home.write(file.without_node(node)))


def retire_nodes(home: Home, file: GroupFile) -> GroupFile:
    """Delete the directories of nodes that were to leave and are no members any more. Call with the
    lock held."""
    gone = [node for node in file.leaving if node not in file.local]
    for node in gone:
        home.delete_node_directory(node)
    if not gone:
        return file
    return home.write(replace(file, leaving=tuple(n for n in file.leaving if n not in gone)))


def stop_group(home: Home, file: GroupFile) -> None:
    """End all nodes of the directory gracefully. Call with the lock held.

    The leader goes last: it has no follower left to hand leadership to, and so does not wait for
    one that ends as well.
    """
    leader = wait_for_leader(file.addresses, file.group, 0, tls_of(file.settings))
    stop_nodes(home, [node for node in file.local if node != leader])
    stop_nodes(home, file.local)


def stop_nodes(home: Home, nodes: Iterable[NodeId]) -> None:
    """End nodes gracefully, all at the same time; with SIGKILL those that will not. Call with the
    lock held.

    A node may have another process behind the one that ends: the starter of that one was killed,
    and so it was started once more.
    """
    left = list(nodes)
    while processes := {
        node: state.process for node in left if (state := home.node(node)).running and state.process
    }:
        for process in processes.values():
            process.signal(signal.SIGTERM)
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        for node, process in processes.items():
            if not home.wait_gone(node, process, max(0.0, deadline - time.monotonic())):
                process.signal(signal.SIGKILL)
                if not home.wait_gone(node, process, DRAIN_TIMEOUT_S):
                    left.remove(node)  # the kernel does not let it end
