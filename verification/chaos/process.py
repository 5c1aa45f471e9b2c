"""One node's place and process: started as a user starts it, signalled by pid, watched."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from dledger.config import MIB, format_peers
from dledger.errors import DLedgerError
from dledger.net.connections.blocking import Lost
from dledger.net.connections.handshake import Greeting
from dledger.net.connections.rpc import Rpc
from dledger.net.user_directory import user_secret
from dledger.protocol.messages.client import StatusRequest
from dledger.protocol.messages.hello import HelloRequest
from dledger.protocol.wire import FrameLimits
from dledger.types import NodeId
from verification.chaos.panel import Panel
from verification.chaos.power.outage import cut_power, forget

GROUP: Final = "chaos"
HOST: Final = "127.0.0.1"
"""Where nodes listen."""
PROXY_HOST: Final = "127.0.0.2"
"""Where clients and peers connect to the nodes: the proxy listens there. Linux has the whole of
127.0.0.0/8 without any setting."""
GARBAGE: Final = (
    "a frame starts with",
    "frame CRC",
    "frame version",
    "frame flags",
    "frame header",
    "frame payload",
)
STATUS_S: Final = 1.0
END_S: Final = 20.0
GROUP_SETTINGS: Final[dict[str, Any]] = {
    "segment_bytes": 4 * MIB,
    "index_file_bytes": MIB // 4,
    "max_body_bytes": MIB,
    "push_batch_bytes": MIB,
}
"""Small files, so that a run of minutes rolls many of them."""
REMOVED: Final = 2
"""The exit code of a node that its group has removed."""


class Node:
    """One node's place and process.

    Args:
        plain: run by ``dledger serve``, as a user does; else by `verification.chaos.node`, whose
            disk and clock obey `panel`, and whose power can be cut.
        settings: of its `NodeConfig`.
    """

    def __init__(
        self,
        name: str,
        port: int,
        home: Path,
        peers: Mapping[str, str],
        *,
        plain: bool,
        settings: Mapping[str, Any],
    ) -> None:
        self.name = name
        self.port = port
        self.home = home
        self.disk = home / "disk"
        """A file system of its own may be mounted here."""
        self.disk.mkdir()
        self.directory = self.disk / "store"
        self.plain = plain
        self.joins = False
        """It founds no group, but asks the nodes of ``peers`` for theirs."""
        self.leaving = False
        """It is about to be removed from the group, and ends by itself then."""
        self.panel = Panel(home / "panel")
        self.log = home / "log"
        self.starts = 0
        self.exits: list[int] = []
        """Return codes of its processes so far; negative: the signal."""
        self._journal = home / "journal"
        self._kept = self.disk / "kept"
        self._peers = dict(peers)
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where the proxy takes connections with it."""
        return f"{PROXY_HOST}:{self.port}"

    @property
    def gone(self) -> bool:
        """It was removed from the group, knows it, and has ended."""
        return self.leaving and not self.running and self.exits[-1:] == [REMOVED]

    def move(self, port: int) -> None:
        """The next start is at this port; its ``--peers`` have it."""
        self.port = port
        self._peers[self.name] = self.address

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def paused(self) -> bool:
        """Whether the kernel says so."""
        if self._process is None or not self.running:
            return False
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def start(self) -> None:
        """Start its process; there must be none."""
        self.reap()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.home
            )
        self.starts += 1

    def _command(self) -> list[str]:
        if self.plain:
            peers = format_peers({NodeId(n): a for n, a in self._peers.items()})
            words = f"serve --self-id {self.name} --peers {peers} --group {GROUP} --host {HOST}"
            for name, value in {**GROUP_SETTINGS, **self._settings}.items():
                words += f" --set {name}={value}"
            words += " --join" * self.joins
            return [sys.executable, "-m", "dledger", *words.split(), "--dir", str(self.directory)]
        config = self.home / "config.json"
        node = {
            "node_id": self.name,
            "directory": str(self.directory),
            "host": HOST,
            "port": self.port,
            "secret_file": str(user_secret()),  # as ``serve`` finds it for the plain one
        }
        content = {
            "group": {**GROUP_SETTINGS, "group": GROUP},
            "node": {**self._settings, **node, "joins": self.joins},
            "addresses": self._peers,
            "panel": str(self.home / "panel"),
            "journal": str(self._journal),
            "kept": str(self._kept),
        }
        config.write_text(json.dumps(content))
        return [sys.executable, "-m", "verification.chaos.node", str(config)]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process, if it runs."""
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.reap()

    def cut_power(self, dice: random.Random, mood: float) -> int:
        """Undo changes that no sync covers, now that its process is gone; returns how many. A plain
        disk keeps all of them."""
        return 0 if self.plain else cut_power(self.directory, self._journal, self._kept, dice, mood)

    def exchange_disk(self) -> None:
        """All of its files are gone, now that its process is."""
        shutil.rmtree(self.directory)
        if not self.plain:
            forget(self._journal, self._kept)

    def reap(self) -> None:
        """Wait for a process that ends, and note how it ended."""
        if self._process is not None:
            self.exits.append(self._process.wait(END_S))
            self._process = None

    async def ended(self, timeout_s: float = END_S) -> int | None:
        """The return code as soon as the process has ended; None when it has not by then."""
        deadline = time.monotonic() + timeout_s
        while self.running and time.monotonic() < deadline:  # noqa: ASYNC110 - wakes no task
            await asyncio.sleep(0.02)
        if self.running:
            return None
        self.reap()
        return self.exits[-1]

    async def status(self) -> dict[str, Any]:
        """Its own status, asked for directly; empty when it does not answer."""
        try:
            async with self.asked(STATUS_S) as rpc:
                answer, _ = await rpc.ask(StatusRequest(), (), STATUS_S)
                found: dict[str, Any] = answer.status
                return found
        except (DLedgerError, Lost):
            return {}

    @asynccontextmanager
    async def asked(self, timeout_s: float) -> AsyncIterator[Rpc]:
        """A connection with the node itself, past the proxy."""
        greeting = Greeting(HelloRequest(group=GROUP))
        rpc = await Rpc.open(f"{HOST}:{self.port}", greeting, FrameLimits(), timeout_s)
        try:
            yield rpc
        finally:
            rpc.abort()

    def garbage(self) -> list[str]:
        """Lines of its log that tell of bytes on a connection that no correct program sends; a
        stream that was cut is none of them."""
        with self.log.open(errors="replace") as lines:
            return [
                line.strip()
                for line in lines
                if "dledger.net" in line and any(w in line for w in GARBAGE)
            ]

    def last_words(self, lines: int = 12) -> str:
        """The end of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""
