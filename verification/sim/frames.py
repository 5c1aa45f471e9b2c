"""Harm to single frames on a link between nodes: lost, doubled, late, in another order, or old ones
once more.

TCP hides all of that, but raft does not count on TCP: a link that breaks and opens again loses
frames, and an old one may wait in a buffer for long. Hello, the first frame of a connection, always
comes first.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from dledger.protocol.wire.framing import PREFIX, PREFIX_SIZE
from verification.sim.outcome import SeedCounts
from verification.sim.rng import Rng
from verification.sim.scheduler import Scheduler

KEPT: Final = 32
"""Old frames of each link that may come again."""


class Carrier(Protocol):
    """See `verification.sim.network.Network`."""

    scheduler: Scheduler
    weather: Any
    rng: Rng
    counts: SeedCounts
    old_frames: dict[tuple[str, str], list[bytes]]

    def send(self, source: Any, item: Any) -> None: ...

    def arrive(self, source: Any, item: Any) -> None: ...


class FrameHarm:
    """The harm that one connection of a link does to its frames."""

    def __init__(self, network: Carrier, transport: Any) -> None:
        self._network = network
        self._transport = transport
        self._rest = b""
        self._greeted = False
        self._old: list[bytes] = network.old_frames.setdefault(
            (transport.loop.name, transport.other), []
        )

    def send(self, data: bytes) -> None:
        """Bytes as the product wrote them: any number of frames, and perhaps a part of one."""
        data = self._rest + data if self._rest else data
        at, end = 0, len(data)
        while end - at >= PREFIX_SIZE:
            header_len, payload_len = PREFIX.unpack_from(data, at)[6:8]
            size = PREFIX_SIZE + header_len + payload_len
            if end - at < size:
                break
            self._frame(data[at : at + size])
            at += size
        self._rest = data[at:]

    def _frame(self, frame: bytes) -> None:
        network, transport = self._network, self._transport
        if not self._greeted:
            self._greeted = True
            network.send(transport, frame)
            return
        weather, rng, counts = network.weather, network.rng, network.counts
        if weather.frame_replay:
            if len(self._old) < KEPT:
                self._old.append(frame)
            elif rng.chance(100_000):
                self._old[rng.below(KEPT)] = frame
            if rng.chance(weather.frame_replay):
                counts.bite("replay")
                self._late(rng.pick(self._old))
        if weather.frame_loss and rng.chance(weather.frame_loss):
            counts.bite("loss")
            transport.taken(len(frame))
            return
        if weather.frame_twice and rng.chance(weather.frame_twice):
            counts.bite("duplication")
            self._late(frame)
        if weather.frame_delay and rng.chance(weather.frame_delay):
            counts.bite("reorder")
            transport.taken(len(frame))
            self._late(frame)
            return
        network.send(transport, frame)

    def _late(self, frame: bytes) -> None:
        network, transport = self._network, self._transport
        transport.owe(len(frame))
        when = transport.arrival_ns + network.rng.below(network.weather.late_ns)
        network.scheduler.at(when, network.arrive, transport, frame)
