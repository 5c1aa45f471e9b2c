"""A client's connections under asyncio: one for each node, shared by all calls."""

from __future__ import annotations

import asyncio
from typing import Any

from dledger import forks
from dledger.client.protocol.client_state import LIMITS, PROBE, ClientState, Operation, Request, T
from dledger.client.protocol.routing import Call, Probe, Wait
from dledger.errors import DLedgerError, Unavailable, WrongGroup
from dledger.net.connections.blocking import Lost
from dledger.net.connections.handshake import LoginRefused
from dledger.net.connections.rpc import Rpc
from dledger.net.connections.tls import CertificateRefused


class AsyncTransport:
    """Connections by address, opened when needed; for one event loop."""

    def __init__(self, core: ClientState) -> None:
        self._core = core
        self._born = forks.generation
        self._rpcs: dict[str, Rpc] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    async def run(self, operation: Operation[T]) -> T:
        """Carry out an operation.

        Raises:
            DLedgerError: as the operation says.
        """
        try:
            request = next(operation)
            while True:
                try:
                    answer = await self.ask(request)
                except DLedgerError as error:
                    request = operation.throw(error)
                else:
                    request = operation.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def ask(self, request: Request) -> tuple[Any, memoryview]:
        """Ask until it is answered for good or the time is over."""
        core = self._core
        call = core.call(request)
        while True:
            try:
                step = call.step(core.environment.now_ms())
            except Unavailable as error:
                core.lost = type(error) is Unavailable
                raise
            if isinstance(step, Wait):
                await asyncio.sleep(step.ms / 1000)
                continue
            try:
                rpc = await self.rpc(step.address)
            except Unavailable as error:
                call.unreachable(step.address, str(error).removeprefix(f"{step.address}: "))
                continue
            except DLedgerError as error:
                raise call.refused(error) from None
            answered = await self._exchange(
                call, PROBE if isinstance(step, Probe) else request, rpc
            )
            if answered is None:
                continue
            if isinstance(step, Probe):
                call.learned(step.address, answered[0])
                continue
            code, message, leader_id = request.outcome(answered[0])
            if call.answered(step.address, code, message, leader_id, core.environment.now_ms()):
                return answered

    async def _exchange(
        self, call: Call, request: Request, rpc: Rpc
    ) -> tuple[Any, memoryview] | None:
        """One request on one connection; None when its answer did not come."""
        attempt_ms = request.attempt_ms if request.terms.repeatable else call.deadline_ms
        left_ms = min(attempt_ms, call.deadline_ms - self._core.environment.now_ms())
        try:
            return await rpc.ask(request.message, request.payload, max(1.0, left_ms) / 1000)
        except Lost as error:
            rpc.abort()
            if error.sent and request is not PROBE:
                call.lost(rpc.address, str(error), closed=error.closed)
            else:
                call.unreachable(rpc.address, str(error))
            return None

    async def rpc(self, address: str) -> Rpc:
        """The connection to ``address``, opened if there is none that works.

        Raises:
            Unavailable: no node answers there, or by now one of another group.
            WrongGroup: another group's node is there, and at every other address too, or none of
                ours was ever seen.
            CertificateRefused: at this and every other address one side does not take the other's
                certificate.
            LoginRefused: this and every other node refuse the user.
            ForkedClient: the connections are those of the process that forked this one.
        """
        forks.check_born_here(self._born, "the AsyncClient")
        async with self._opening.setdefault(address, asyncio.Lock()):
            rpc = self._rpcs.get(address)
            if rpc is None or not rpc.usable:
                rpc = self._rpcs[address] = await self.open(address)
            return rpc

    async def open(self, address: str) -> Rpc:
        """A connection of the caller's own; errors as in `rpc`."""
        try:
            timeout_s = self._core.config.connect_timeout_ms / 1000
            rpc = await Rpc.open(address, self._core.greeting(), LIMITS, timeout_s, self._core.tls)
        except (WrongGroup, CertificateRefused, LoginRefused) as error:
            raise self._core.refusal(address, error) from None
        rpc.pause.on_notice = self._core.throttled
        self._core.routes.welcomed(rpc.welcome)
        self._core.topics.clear()  # they may have changed meanwhile
        return rpc

    async def close(self) -> None:
        """Close all connections; in a forked child they are the parent's, and stay."""
        if self._born != forks.generation:
            return
        rpcs, self._rpcs = self._rpcs, {}
        for rpc in rpcs.values():
            await rpc.close()
