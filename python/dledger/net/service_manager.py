"""What a service manager is told of a process, by systemd's protocol: datagrams of ``NAME=value``
lines to the Unix socket that NOTIFY_SOCKET names (sd_notify(3))."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from typing import Final

from dledger.interrupts import suppressed

PINGS: Final = 3
"""In the time after which the service manager takes the process for hung."""


class ServiceManager:
    """The service manager of this process; without one nothing is sent. A message that it does not
    take is lost, a status but for a while: the process goes on without it."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self._status = ""
        self.ping_s: float | None = None
        """Seconds between two pings; None: none are wanted."""
        timeout_us = environment.get("WATCHDOG_USEC", "")
        is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        if self._address and is_ours and timeout_us.isdecimal() and int(timeout_us):
            self.ping_s = int(timeout_us) / 1e6 / PINGS

    @property
    def is_there(self) -> bool:
        return bool(self._address)

    def ready(self, status: str) -> None:
        """The process serves, for the first time or after `reloading`."""
        self._send(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}")

    def tell(self, status: str) -> None:
        """One line for ``systemctl status``; one that it has already is not sent."""
        if status != self._status and self._send(f"STATUS={status}"):
            self._status = status

    def ping(self) -> None:
        """The process is well."""
        self._send("WATCHDOG=1")

    def reloading(self) -> None:
        """Settings are read again; then call `ready`."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send(f"RELOADING=1\nMONOTONIC_USEC={now_us}")

    def stopping(self) -> None:
        """The process ends, as it was asked to."""
        self._send("STOPPING=1\nSTATUS=hands over and stops")

    def _send(self, message: str) -> bool:
        """Whether it was taken."""
        if self._address:
            with suppressed(), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)
                sock.sendto(message.encode(), self._address)
                return True
        return False
