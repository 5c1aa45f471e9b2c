"""Reading a range of offsets from the replicas under asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import TYPE_CHECKING

from dledger.client.aio.transport import AsyncTransport
from dledger.client.protocol.client_state import ATTEMPT_MS, ClientState
from dledger.client.protocol.reading.fetching import WAIT_MS, Fetcher
from dledger.client.protocol.reading.reading import take, unanswered
from dledger.client.protocol.reading.replicas import Replicas, find_nodes, preferred_address
from dledger.client.protocol.reading.watching import ReplicaWatch
from dledger.errors import DLedgerError, ProtocolError
from dledger.net.connections.blocking import Lost
from dledger.protocol.messages.fetched import FetchResponse

if TYPE_CHECKING:
    from dledger.client.protocol.reading.fetched import FetchedBodies


async def fetch(
    core: ClientState,
    transport: AsyncTransport,
    fetcher: Fetcher,
    replica: str | None,
    follow: bool,
) -> AsyncGenerator[FetchedBodies, None]:
    """Bodies from the fetcher's position on; ``replica`` and errors as `Client.read` has them."""
    if fetcher.done:
        return
    await transport.run(find_nodes(core))
    replicas = Replicas(core, partial(preferred_address, core, replica, follow))
    watch = ReplicaWatch(core, replicas, fetcher=fetcher) if core.racks.own else None
    while not fetcher.done:
        try:
            bodies = await _fetch_some(transport, fetcher, replicas.address, watch)
        except DLedgerError as error:
            await asyncio.sleep(replicas.failed(error))
            continue
        if bodies:
            yield bodies
        replicas.worked()
        if watch is not None:
            if (look := watch.due()) is not None:
                await transport.run(look)
            watch.moves()


async def _fetch_some(
    transport: AsyncTransport, fetcher: Fetcher, address: str, watch: ReplicaWatch | None
) -> FetchedBodies:
    rpc = await transport.rpc(address)
    asked_ms = 0.0 if watch is None else watch.now_ms()
    try:
        answer, payload = await rpc.ask(fetcher.request(), (), (ATTEMPT_MS + WAIT_MS) / 1000)
        if not isinstance(answer, FetchResponse):
            rpc.abort()
            raise ProtocolError(f"{type(answer).__name__} where FetchResponse belongs")
    except (Lost, ProtocolError) as error:
        raise unanswered(fetcher, address, error) from None
    bodies = take(fetcher, answer, payload)
    if watch is not None:
        watch.took(answer.end_offset, asked_ms)
    return bodies
