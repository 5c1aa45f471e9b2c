"""Messages of a RocketMQ commit log, for asyncio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dledger.client.aio.transport import AsyncTransport
from dledger.client.protocol.arguments import checked
from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.messages import (
    LATEST,
    GetMessageResult,
    PutMessageResult,
    get,
    make_message,
    offset_of,
    put,
    query,
    view,
)
from dledger.rocketmq.format.message import Message


@checked
class AsyncMessages:
    """The same part of `dledger.client.AsyncClient`."""

    core: ClientState
    _channel: AsyncTransport

    async def put_message(
        self,
        topic: str,
        body: bytes,
        *,
        queue_id: int = 0,
        tags: str = "",
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
    ) -> PutMessageResult:
        """See `Client.put_message`. Puts that overlap are in no order."""
        message = make_message(self.core, topic, body, queue_id, tags, keys, properties, flag)
        return (await self.put_messages([message]))[0]

    async def put_messages(self, messages: Sequence[Message]) -> list[PutMessageResult]:
        """See `Client.put_messages`."""
        return await self._channel.run(put(self.core, messages))

    async def view_message(self, place: int | str, *, stale: bool = False) -> Message:
        """See `Client.view_message`."""
        return await self._channel.run(
            view(offset_of(place) if isinstance(place, str) else place, stale)
        )

    async def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        max_messages: int = 32,
        max_bytes: int = 4 << 20,
        stale: bool = False,
    ) -> GetMessageResult:
        """See `Client.get_message`."""
        return await self._channel.run(
            get(topic, queue_id, queue_offset, max_messages, max_bytes, stale)
        )

    async def query_message(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = 32,
        begin: int = 0,
        end: int = LATEST,
        stale: bool = False,
    ) -> list[Message]:
        """See `Client.query_message`."""
        return await self._channel.run(query(topic, key, max_messages, begin, end, stale))


__all__ = ["AsyncMessages"]
