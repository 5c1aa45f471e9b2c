"""A transaction of a consumer: the records that it makes, and the offsets of those that it made
them from, committed together."""

from __future__ import annotations

from typing import Final

from dledger.client.aio.consuming.engine import ConsumerEngine
from dledger.client.aio.staging import AsyncStage, AsyncTransaction
from dledger.client.aio.transport import AsyncTransport
from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.operations import transaction_requests as transactions
from dledger.client.protocol.results import Committed
from dledger.errors import DLedgerError, OutcomeUnknown

LABEL: Final = "consumer"


class AsyncConsumerTransaction(AsyncTransaction):
    """`dledger.client.ConsumerTransaction` under asyncio."""

    _engine: ConsumerEngine

    async def commit(self) -> Committed:
        """See `ConsumerTransaction.commit`."""
        try:
            done = await super().commit()
        except OutcomeUnknown:
            self._engine.doubt()
            raise
        except DLedgerError:
            self._engine.end_transaction(committed=False)
            raise
        self._engine.end_transaction(committed=True)
        return done

    async def abort(self) -> None:
        """See `ConsumerTransaction.abort`."""
        self._engine.end_transaction(committed=False)
        await super().abort()


async def open_transaction(
    core: ClientState, transport: AsyncTransport, engine: ConsumerEngine, timeout_ms: int
) -> AsyncConsumerTransaction:
    """A transaction of the consumer; raises as `Consumer.transaction`."""
    writer_id, sequence = engine.begin_transaction()
    try:
        opened = await transport.run(
            transactions.open_stage(writer_id, sequence, LABEL, timeout_ms)
        )
    except BaseException:
        engine.transactions.end(committed=False)
        raise
    assert not isinstance(opened, Committed), "a consumer's sequences are its own, and grow"
    what = f"stage {opened} of a transaction of group {engine.settings.group!r}"
    stage = AsyncStage(core, transport, stage_id=opened, what=what)
    found = AsyncConsumerTransaction(
        core,
        transport,
        stage=stage,
        writer_id=writer_id,
        sequence=sequence,
        consumed=engine.transactions.command,
    )
    found._engine = engine
    return found
