"""One node of an embedded group: ``python -m dledger.embedded.child DIR NODE``.

All it needs is in DIR/group.json. It says on descriptor 1, in one JSON line, that it serves or why
it cannot, and from then on writes to its log only. It ends on SIGTERM, when the group was not
needed for long enough, and when the directory is not there any more.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Final

from dledger.config import GroupConfig
from dledger.embedded.groupfile import GroupFile
from dledger.embedded.home import LOG_FILE, Home, PidFile
from dledger.embedded.nodelog import log_to_stderr, write_to
from dledger.embedded.probe import ask_to_lead
from dledger.embedded.process import raise_limits
from dledger.embedded.settings import IDLE_TIMEOUT_MS, group_config, node_config
from dledger.errors import ConfigError, DLedgerError, PathError, Unavailable
from dledger.logs.output import Output
from dledger.net import run
from dledger.net.user_directory import forget_group
from dledger.node.node import NodeServer
from dledger.node.peers.members import RulingAddresses
from dledger.node.peers.membership_secret import with_secret
from dledger.node.process import tell_counted, tune_interpreter
from dledger.types import NodeId

logger = logging.getLogger("dledger.embedded")

ALREADY_RUNNING: Final = "AlreadyRunning"
FORMER_TIMEOUT_S: Final = 20.0
"""How long to wait for a former process of this node to finish draining."""
PREFER_S: Final = 0.5
"""Time between two requests for leadership."""
WATCH_S: Final = 0.5
"""Time between two checks of use, directory and group.json."""


class Addresses:
    """The nodes' addresses as group.json has them now: a port may be picked anew while others
    run."""

    def __init__(self, home: Home, file: GroupFile) -> None:
        self._home = home
        self._seen = self._stamp()
        self.file = file

    def __call__(self) -> dict[NodeId, str]:
        return self.refresh().addresses

    def refresh(self) -> GroupFile:
        """Read group.json again if it is another one than before."""
        stamp = self._stamp()
        if stamp and stamp != self._seen:
            with suppress(DLedgerError):  # damaged: go on with the last file
                self.file = self._home.read() or self.file
                self._seen = stamp
        return self.file

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            stat = self._home.group_file.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size


class PathAddresses(Addresses, RulingAddresses):
    """Those of a whole group, which picks them."""


class Watch:
    """Decides when a node ends by itself."""

    def __init__(
        self, home: Home, addresses: Addresses, *, pid_file: PidFile, server: NodeServer
    ) -> None:
        self._home = home
        self._place = home.place()
        self._addresses = addresses
        self._pid_file = pid_file
        self._server = server
        self._used = -1

    async def reason_to_end(self) -> str:
        """Returns, with the reason in words, when there is one."""
        while True:
            await asyncio.sleep(WATCH_S)
            self._pid_file.touch()
            if self._home.place() != self._place:
                if not self._home.path.exists():
                    forget_group(self._addresses.file.group)
                return "the directory was moved or deleted"
            requests = self._server.parts.router.client_requests
            if requests != self._used:
                self._used = requests
                self._home.touch_used()
            elif self.unneeded() and self._announce_end():
                return "nobody has used the group"

    def unneeded(self) -> bool:
        """Whether no node was used for the idle timeout and no program that asked for them
        lives."""
        file = self._addresses.refresh()
        idle_s = file.settings.get("idle_timeout_ms", IDLE_TIMEOUT_MS) / 1000
        return idle_s > 0 and self._home.unused_s() >= idle_s and not file.live_users()

    def _announce_end(self) -> bool:
        """Under the lock, so that no program joins a group that is just about to end."""
        try:
            with self._home.lock(timeout_s=0):
                if not self.unneeded():
                    return False
                self._pid_file.write(ending=True)
                return True
        except (Unavailable, PathError):
            return False  # a program is joining or the directory is gone; try again


async def serve(home: Home, node_id: NodeId, pid_file: PidFile, output: Output) -> None:
    """Run the node until it has a reason to end, then drain it."""
    file = home.read()
    if file is None:
        raise ConfigError(f"{home.group_file} is missing; start the group with EmbeddedGroup")
    group, joins = shared_settings(file, node_id)
    node = node_config(
        node_id, home.node_directory(node_id), file.addresses[node_id], file.settings
    )
    if file.named:
        node = with_secret(node, file.addresses)
    else:
        node = replace(node, secret_file=str(home.secret_file), clients_prove=True, joins=joins)
        if node.metrics_port > 0:  # one for each of them, on one machine
            number = int(node_id.removeprefix("n"))  # a place in the list changes with the list
            node = replace(node, metrics_port=node.metrics_port + number)
    addresses = Addresses(home, file) if file.named else PathAddresses(home, file)
    output.use(node.log_format, node.log_level)
    tune_interpreter()
    server = NodeServer(group, node, addresses=addresses)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, server.reload)
    await server.start()
    home.touch_used()
    counting = asyncio.ensure_future(tell_counted(output))
    preferring = (
        asyncio.ensure_future(take_the_lead(server, file.group, addresses)) if file.named else None
    )
    say({"ready": True})
    write_to(home.node_directory(node_id) / LOG_FILE, 1)  # closes the pipe to the starter
    logger.info("%s of group %s serves on %s", node_id, file.group, file.addresses[node_id])
    try:
        reason = await first_reason_to_end(
            server, Watch(home, addresses, pid_file=pid_file, server=server)
        )
        logger.info("ends: %s", reason)
        pid_file.write(ending=True)
    finally:
        counting.cancel()
        if preferring:
            preferring.cancel()
        await server.stop()
    pid_file.clear()


def shared_settings(file: GroupFile, node_id: NodeId) -> tuple[GroupConfig, bool]:
    """The settings that all nodes share, and whether this node has joined after the founding."""
    if node_id in file.founding:
        return group_config(file.group, file.founding, file.settings), False
    settings = dict(file.settings)
    if "preferred_leaders" in settings:  # a founder among them may be gone
        preferred = [one for one in settings["preferred_leaders"] if one in file.members]
        settings["preferred_leaders"] = preferred
    return group_config(file.group, file.members, settings), True


async def first_reason_to_end(server: NodeServer, watch: Watch) -> str:
    """A signal, a reason of the watch's, its removal from the group, or the error that the node
    cannot go on with, which is raised."""
    terminated = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, terminated.set)
    signalled, watched, _, failed = waits = (
        asyncio.ensure_future(terminated.wait()),
        asyncio.ensure_future(watch.reason_to_end()),
        asyncio.ensure_future(server.removed.wait()),
        asyncio.ensure_future(server.wait_failed()),
    )
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
        if signalled.done():
            return "asked to by a signal"
        return watched.result() if watched.done() else "it was removed from the group"
    finally:
        for wait in waits:
            wait.cancel()


async def take_the_lead(server: NodeServer, group: str, addresses: Addresses) -> None:
    """An application's own node is the preferred leader: ask the leader to hand over, until this
    node has led once.

    A leader refuses while this node is behind, so it asks again. Not for ever: two applications
    whose nodes are in one group would take it from one another without end. Where leadership must
    always come back, every node has the setting ``preferred_leaders``.
    """
    node = server.node.node_id
    while (leader := server.raft.leader_id) != node:
        if leader:
            await asyncio.to_thread(ask_to_lead, addresses()[leader], group, node, server.node.tls)
        await asyncio.sleep(PREFER_S)


def say(answer: dict[str, object]) -> None:
    """Tell the program that started this node; it may have been killed meanwhile."""
    with suppress(OSError):
        os.write(1, json.dumps(answer).encode() + b"\n")


def main() -> None:
    """The process's entry."""
    os.umask(0o077)  # a group's files are for its owner alone
    os.closerange(3, 65536)  # descriptors of the starter's that it did not mean to share
    home, node_id = Home(sys.argv[1]), NodeId(sys.argv[2])
    # relative paths cannot surprise, and the starter's directory may be unmounted
    os.chdir(home.path)
    raise_limits(resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_DATA)
    output = log_to_stderr(home.node_directory(node_id) / LOG_FILE)
    try:
        pid_file = PidFile(home, node_id)
        if not pid_file.acquire(FORMER_TIMEOUT_S):
            say({"error": ALREADY_RUNNING, "message": f"{node_id} of {home} runs already"})
            sys.exit(1)
        run(serve(home, node_id, pid_file, output))
    except Exception as error:
        expected = isinstance(error, DLedgerError)
        logger.error("%s of %s ends with an error: %s", node_id, home, error, exc_info=not expected)
        say({"error": type(error).__name__, "message": str(error)})
        sys.exit(1)


if __name__ == "__main__":
    main()
