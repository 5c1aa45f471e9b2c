"""The network: hosts, ports, and streams between them that are slow, stall, break, or go one way
only.

Streams keep TCP's promise: the sent bytes arrive in order, without gaps. A lost packet shows as a
delay, a cut as silence, then as a broken connection. The links between nodes are harmed frame by
frame as well (`verification.sim.frames`), because raft must bear what TCP hides.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from verification.sim.loop import SimLoop
from verification.sim.outcome import SeedCounts
from verification.sim.rng import Rng
from verification.sim.scheduler import MS, SECOND, US, Scheduler
from verification.sim.stream import RESET, Item, SimTransport

Path = tuple[str, str]
"""From one host to another."""
UNANSWERED_NS: Final = 3 * SECOND
"""A link between nodes gives up a connection without answers, as TCP_USER_TIMEOUT makes it."""


@dataclass(slots=True)
class Weather:
    """How the network is at the moment; probabilities are in millionths per write or frame."""

    least_ns: int = 100 * US
    most_ns: int = 1 * MS
    loss: int = 0
    """Packets lost: TCP sends them again after a while."""
    breaks: int = 0
    """Connections reset."""
    splits: int = 0
    """A write that arrives in two parts."""
    frame_loss: int = 0
    frame_twice: int = 0
    frame_replay: int = 0
    """An old frame of the same link comes again."""
    frame_delay: int = 0
    """A frame that comes late, behind others."""
    late_ns: int = 500 * MS
    """By at most so much."""


class Server:
    """A listening port."""

    def __init__(
        self, network: Network, loop: SimLoop, factory: Callable[[], Any], address: tuple[str, int]
    ) -> None:
        self.loop = loop
        self.factory = factory
        self._network = network
        self._address = address
        self.sockets = [self]

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def close(self) -> None:
        self._network.closed(self._address, self)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A connection that a process wants."""

    loop: SimLoop
    factory: Callable[[], Any]
    host: str
    port: int
    answer: asyncio.Future[Any]

    @property
    def is_over(self) -> bool:
        return self.loop.dead or self.answer.done()


class Network:
    """All hosts and the links between them."""

    def __init__(self, scheduler: Scheduler, rng: Rng, counts: SeedCounts) -> None:
        self.scheduler = scheduler
        self.rng = rng
        self.counts = counts
        self.weather = Weather()
        self.seen: Callable[[SimLoop, SimLoop, bytes], None] = _ignore
        """Told everything that arrives."""
        self.cuts: dict[Path, bool] = {}
        """Nothing arrives by these."""
        self.nodes: dict[str, bool] = {}
        """Hosts whose links among each other are harmed frame by frame."""
        self.off: dict[str, bool] = {}
        """Hosts without power."""
        self.old_frames: dict[Path, list[bytes]] = {}
        """Frames of each link that may come again."""
        self._servers: dict[tuple[str, int], Server] = {}
        self._streams: dict[str, list[SimTransport]] = {}
        self._stalled: dict[Path, list[tuple[SimTransport, Item]]] = {}

    # --- connections ------------------------------------------------------------------------------

    def listen(self, loop: SimLoop, factory: Callable[[], Any], host: str, port: int) -> Server:
        known = self._servers.get((host, port))
        if known is not None and not known.loop.dead:
            raise OSError(errno.EADDRINUSE, "address in use")
        server = self._servers[host, port] = Server(self, loop, factory, (host, port))
        return server

    def closed(self, address: tuple[str, int], server: Server) -> None:
        if self._servers.get(address) is server:
            del self._servers[address]

    async def connect(self, loop: SimLoop, factory: Callable[[], Any], host: str, port: int) -> Any:
        """A connection, ConnectionRefusedError, or no answer for ever, as the weather is."""
        answer = loop.create_future()
        self._knock(Attempt(loop, factory, host, port, answer))
        return await answer

    def _knock(self, attempt: Attempt) -> None:
        loop, server = attempt.loop, self._servers.get((attempt.host, attempt.port))
        # a member that has moved may listen at the address that was another one's
        host = attempt.host if server is None else server.loop.name
        if attempt.is_over:
            return
        if self.is_cut(loop.name, host) or self.is_cut(host, loop.name) or self.off.get(host):
            self.scheduler.after(SECOND, self._knock, attempt)
            return
        self.scheduler.after(self.delay(), self._arrived, attempt)

    def _arrived(self, attempt: Attempt) -> None:
        server, loop = self._servers.get((attempt.host, attempt.port)), attempt.loop
        if server is None or server.loop.dead:
            self.scheduler.after(self.delay(), self._refused, attempt)
            return
        if attempt.is_over:
            return
        ours, theirs = self._pair(loop, server.loop)
        server.loop.call_soon(theirs.open, server.factory)
        self.scheduler.after(self.delay(), self._accepted, attempt, ours)

    def _pair(self, loop: SimLoop, other: SimLoop) -> tuple[SimTransport, SimTransport]:
        is_link = loop.name in self.nodes and other.name in self.nodes
        ours, theirs = (
            SimTransport(self, loop, other.name, is_link),
            SimTransport(self, other, loop.name, False),
        )
        ours.peer, theirs.peer = theirs, ours
        for transport in (ours, theirs):
            streams = self._streams.setdefault(transport.loop.name, [])
            if len(streams) >= 64:
                streams[:] = [stream for stream in streams if not stream.over]
            streams.append(transport)
        return ours, theirs

    def _accepted(self, attempt: Attempt, transport: SimTransport) -> None:
        answer = attempt.answer

        def opened() -> None:
            if answer.done():
                transport.abort()
            elif transport.over:  # reset between the other side's accept and now
                answer.set_exception(ConnectionResetError(errno.ECONNRESET, "reset"))
            else:
                transport.open(attempt.factory)
                answer.set_result((transport, transport.protocol))

        attempt.loop.call_soon(opened)

    def _refused(self, attempt: Attempt) -> None:
        answer, host = attempt.answer, attempt.host

        def tell() -> None:
            if not answer.done():
                answer.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, f"{host} refused"))

        if not self.is_cut(host, attempt.loop.name):
            attempt.loop.call_soon(tell)

    # --- bytes ------------------------------------------------------------------------------------

    def delay(self) -> int:
        weather = self.weather
        return self.rng.between(weather.least_ns, weather.most_ns)

    def send(self, source: SimTransport, item: Item) -> None:
        """On its way, in order behind what this end sent before."""
        if source.path in self.cuts:
            self.counts.bite("cut")
            self._stall(source, item)
            return
        weather, rng = self.weather, self.rng
        delay = rng.between(weather.least_ns, weather.most_ns)
        if weather.loss and rng.chance(weather.loss):
            self.counts.bite("packet loss")
            delay += rng.between(200 * MS, 1200 * MS)
        if weather.breaks and rng.chance(weather.breaks) and isinstance(item, bytes):
            self.counts.bite("connection reset")
            self.reset(source)
            return
        if (
            weather.splits
            and isinstance(item, bytes)
            and len(item) > 1
            and not source.is_link
            and (rng.chance(weather.splits))
        ):
            self.counts.bite("split write")
            at = rng.between(1, len(item) - 1)
            self._arrive_in(source, item[:at], delay)
            item, delay = item[at:], delay + self.delay()
        self._arrive_in(source, item, delay)

    def _arrive_in(self, source: SimTransport, item: Item, delay: int) -> None:
        when = self.scheduler.now_ns + delay
        if when > source.arrival_ns:
            source.arrival_ns = when
        self.scheduler.at(source.arrival_ns, self.arrive, source, item)

    def arrive(self, source: SimTransport, item: Item) -> None:
        """At the other end, or cut off in the last moment."""
        target = source.peer
        if source.lost:
            return
        if source.path in self.cuts:
            self.counts.bite("cut")
            self._stall(source, item)
        elif target.loop.dead:
            if self.off.get(source.other):
                self._unanswered(source)
            elif item is not RESET:
                self.scheduler.after(self.delay(), self._reset_arrives, source)
        elif target.receive(item) and isinstance(item, bytes):
            self.seen(source.loop, target.loop, item)

    def _stall(self, source: SimTransport, item: Item) -> None:
        self._stalled.setdefault(source.path, []).append((source, item))
        self._unanswered(source)

    def _unanswered(self, source: SimTransport) -> None:
        if source.is_link and not source.doubted:
            source.doubted = True
            self.scheduler.after(UNANSWERED_NS, self._give_up, source)

    def _give_up(self, source: SimTransport) -> None:
        if source.doubted and not source.over:
            source.lose(TimeoutError(errno.ETIMEDOUT, "nobody answers"))

    def _reset_arrives(self, target: SimTransport) -> None:
        if not self.is_cut(target.other, target.loop.name):
            target.lose(ConnectionResetError(errno.ECONNRESET, "reset"))

    def reset(self, source: SimTransport) -> None:
        """Break a connection: both ends hear of it, and the bytes under way are gone."""
        source.lose(ConnectionResetError(errno.ECONNRESET, "reset"))
        source.peer.lose(ConnectionResetError(errno.ECONNRESET, "reset"))

    # --- faults -----------------------------------------------------------------------------------

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self.cuts

    def cut(self, source: str, target: str) -> None:
        """Bytes of ``source`` do not reach ``target`` any more."""
        self.cuts[source, target] = True

    def heal(self, source: str, target: str) -> None:
        """Bytes that have waited arrive, a little later."""
        if self.cuts.pop((source, target), None) is None:
            return
        for stream, item in self._stalled.pop((source, target), []):
            if not stream.lost:
                stream.doubted = False
                self.send(stream, item)

    def cut_all(self, paths: Iterable[Path]) -> None:
        for path in paths:
            self.cut(*path)

    def heal_all(self, paths: Iterable[Path] | None = None) -> None:
        """These paths; all that are cut, unless given."""
        for path in list(self.cuts) if paths is None else paths:
            self.heal(*path)

    def died(self, host: str, loop: SimLoop, power: bool) -> None:
        """A process is gone: its system closes its connections, unless that is gone too."""
        for address in [a for a, server in self._servers.items() if server.loop is loop]:
            del self._servers[address]
        for stream in self._streams.pop(host, []):
            if not stream.over:
                stream.over = True
                if not power:
                    self.send(stream, RESET)

    def streams_of(self, host: str) -> list[SimTransport]:
        return [stream for stream in self._streams.get(host, []) if not stream.over]


def _ignore(source: SimLoop, target: SimLoop, data: bytes) -> None:
    """Ignore the bytes."""
