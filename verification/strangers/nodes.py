"""Three nodes, each run by ``dledger serve`` as a user runs it, and their memory as the kernel
counts it."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from dledger.client import Client
from dledger.config import format_peers
from dledger.embedded.ports import free_ports
from dledger.errors import DLedgerError, Unavailable
from dledger.types import NodeId
from verification.strangers.certificates import Authority

GROUP: Final = "strangers"
START_S: Final = 30.0
END_S: Final = 20.0
SETTINGS: Final = {
    "segment_bytes": "67108864",
    "index_file_bytes": "8388608",
    "disk_full_ratio": "1",
    "disk_warn_ratio": "1",
}
"""Of each node: small files, on a disk that may be full of other things."""


def tls_settings(files: tuple[str, str, str]) -> dict[str, str]:
    """These files as settings of a node or client."""
    return dict(zip(("tls_ca", "tls_certificate", "tls_key"), files, strict=True))


def _memory(process: subprocess.Popen[bytes], field: str) -> float:
    """A field of the kernel's status of a process, in MiB; 0 of one that is gone."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{process.pid}/status").read_text()
        if found := re.search(rf"{field}:\s+(\d+) kB", status):
            return int(found[1]) / 1024
    return 0.0


class Nodes:
    """A group in ``folder``; a context manager. ``authority``: under TLS, with its certificates."""

    def __init__(self, folder: Path, count: int = 3, authority: Authority | None = None) -> None:
        names = [NodeId(f"n{number}") for number in range(count)]
        ports = free_ports("127.0.0.1", count)
        self.addresses = {
            name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)
        }
        self.folder = folder
        """Of stores and logs."""
        self._files: dict[NodeId, tuple[str, str, str]] = {}
        self.settings: dict[str, str] = {}
        """Of a client."""
        if authority is not None:
            self._files = {name: authority.issue(name, f"dledger://node/{name}") for name in names}
            self.settings = tls_settings(authority.issue("healthy", "dledger://client/healthy"))
        self._processes: dict[NodeId, subprocess.Popen[bytes]] = {}
        self._peak_mib = 0.0

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.addresses.values())

    def start(self, name: NodeId) -> None:
        """Start one of them."""
        line = self.command(name)
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def command(self, name: NodeId) -> list[str]:
        """The command line that runs one of them."""
        options = {
            "--self-id": name,
            "--peers": format_peers(self.addresses),
            "--group": GROUP,
            "--dir": str(self.folder / name),
        }
        settings = SETTINGS | (tls_settings(self._files[name]) if self._files else {})
        return [
            *(sys.executable, "-m", "dledger", "serve"),
            *chain(*options.items()),
            *chain(*(("--set", f"{setting}={value}") for setting, value in settings.items())),
        ]

    def stop(self, name: NodeId) -> None:
        """End one of them as an operator does."""
        self.peak_mib()
        process = self._processes.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        for name in self.addresses:
            self.start(name)
        self.until_led()
        return self

    def until_led(self) -> None:
        """Wait until there is a leader and all other nodes follow it.

        Raises:
            Unavailable: not in time.
        """
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            with contextlib.suppress(DLedgerError):
                found = self.status()
                leaders = {state.get("leader_id", "") for state in found.values()}
                if len(found) == len(self.addresses) and len(leaders) == 1 and "" not in leaders:
                    return
            time.sleep(0.2)
        raise Unavailable(
            f"no leader of {self.bootstrap_servers} within {START_S:g} s; logs are in {self.folder}"
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for name in list(self._processes):
            self.stop(name)

    def status(self) -> dict[str, dict[str, Any]]:
        """Of each node, as a client is told."""
        with Client(self.bootstrap_servers, request_timeout_ms=5000, **self.settings) as client:
            return {str(node): dict(state) for node, state in client.status().items()}

    def terms(self) -> dict[str, int]:
        """The term of each node."""
        return {node: int(state.get("term", -1)) for node, state in self.status().items()}

    @property
    def running(self) -> int:
        """How many processes there still are."""
        return sum(process.poll() is None for process in self._processes.values())

    def peak_mib(self) -> float:
        """The largest resident memory that any of them ever had, in MiB."""
        peaks = (_memory(process, "VmHWM") for process in self._processes.values())
        self._peak_mib = round(max(self._peak_mib, *peaks), 1)
        return self._peak_mib

    def begin_peak(self) -> dict[NodeId, float]:
        """The resident memory of each, in MiB; from now on `growth_mib` counts."""
        self.peak_mib()
        for process in self._processes.values():
            with contextlib.suppress(OSError):
                # the kernel forgets the peak so far
                Path(f"/proc/{process.pid}/clear_refs").write_text("5")
        return {name: _memory(process, "VmRSS") for name, process in self._processes.items()}

    def growth_mib(self, before: dict[NodeId, float]) -> float:
        """How much the peak of a node is above what it had before, at most, in MiB."""
        return round(
            max(_memory(self._processes[name], "VmHWM") - had for name, had in before.items()), 1
        )

    def log_lines(self) -> int:
        """Lines in the logs of all nodes."""
        return sum(path.read_bytes().count(b"\n") for path in self.folder.glob("*.log"))
