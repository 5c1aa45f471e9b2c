"""Reading a range of offsets from the replicas under asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from dledger.client.aio.transport import AsyncTransport
from dledger.client.protocol.client_state import ATTEMPT_MS, ClientState
from dledger.client.protocol.reading.fetching import WAIT_MS, Fetcher
from dledger.client.protocol.reading.reading import (
    Replicas,
    find_nodes,
    preferred_address,
    take,
    unanswered,
)
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
    replicas = Replicas(core, preferred_address(core, replica, follow))
    while not fetcher.done:
        try:
            bodies = await _fetch_some(transport, fetcher, replicas.address)
        except DLedgerError as error:
            await asyncio.sleep(replicas.failed(error))
            continue
        if bodies:
            yield bodies
        replicas.worked()


async def _fetch_some(transport: AsyncTransport, fetcher: Fetcher, address: str) -> FetchedBodies:
    rpc = await transport.rpc(address)
    try:
        answer, payload = await rpc.ask(fetcher.request(), (), (ATTEMPT_MS + WAIT_MS) / 1000)
        if not isinstance(answer, FetchResponse):
            rpc.abort()
            raise ProtocolError(f"{type(answer).__name__} where FetchResponse belongs")
    except (Lost, ProtocolError) as error:
        raise unanswered(fetcher, address, error) from None
    return take(fetcher, answer, payload)
