"""Free ports for nodes."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from dledger.errors import PortInUse
from dledger.interrupts import is_interrupt

_FALLBACK: Final = (20_000, 32_000)
_TRIES: Final = 2000


def port_range() -> tuple[int, int]:
    """Ports that the system does not hand out to outgoing connections, [first, end).

    A port from the system's own range could be taken by any outgoing connection while its node is
    down, and a peer that keeps connecting to it on loopback could even end up connected to itself.
    """
    try:
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError) as error:
        if is_interrupt(error):
            raise
        return _FALLBACK
    first, end = max(1024, low - 16_000), low
    return (first, end) if end - first >= 1000 else _FALLBACK


def free_ports(host: str, count: int, avoid: set[int] | None = None) -> list[int]:
    """``count`` different ports of ``host`` on which no process listens now.

    Raises:
        PortInUse: there are none, or ``host`` is no address of this machine.
    """
    first, end = port_range()
    dice = random.Random()
    found: list[int] = []
    error: OSError | None = None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as held:
        for _ in range(_TRIES):
            port = dice.randrange(first, end)
            if port in found or port in (avoid or ()):
                continue
            probe = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
            try:
                probe.bind((host, port))
            except OSError as failed:
                if is_interrupt(failed):
                    raise
                error = failed
                probe.close()
                continue
            found.append(port)
            if len(found) == count:
                return found
    raise PortInUse(
        f"no {count} free ports on {host} in {first}..{end - 1} ({error}); is it an address of "
        f"this host?"
    )
