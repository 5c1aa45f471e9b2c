"""Transactions of a consumer: what it has processed is committed with what it makes of it."""

from __future__ import annotations

from dledger.client.protocol.consuming.settings import TopicPartition
from dledger.client.protocol.consuming.state import ConsumerState
from dledger.errors import ConfigError, ConsumerFenced, TransactionError
from dledger.protocol.messages.catalog_commands import CommitConsumed


class ConsumedOffsets:
    """The offsets that a consumer's transaction commits, of one transaction at a time.

    Attributes:
        is_open: whether there is one.
    """

    def __init__(self, state: ConsumerState) -> None:
        self.is_open = False
        self._state = state
        self._sequence = -1
        self._lost: list[TopicPartition] = []
        self._positions: dict[int, int] = {}
        self._command: CommitConsumed | None = None

    def begin(self, by_time: bool) -> tuple[str, int]:
        """The writer id and sequence of a new transaction.

        Raises:
            ConfigError: the consumer commits by time.
            TransactionError: another one is open.
            ConsumerFenced: the consumer is no member at the moment.
        """
        if by_time:
            raise ConfigError(
                "a consumer that commits by time has no transactions: make it with commit='manual'"
            )
        if self.is_open:
            raise TransactionError("this consumer has a transaction already: end that one first")
        member = self._state.membership()
        self._sequence += 1
        self._lost, self._command, self.is_open = [], None, True
        return f"job/consumer/{member.group}/{member.member_id}", self._sequence

    def taken(self, places: list[TopicPartition]) -> None:
        """These partitions are this consumer's no more."""
        if self.is_open:
            self._lost += places

    def command(self) -> CommitConsumed:
        """The commit of what was processed; the same one when it is asked for again.

        Raises:
            ConsumerFenced: a partition whose records may be in the transaction was taken from this
                consumer.
        """
        if self._lost:
            raise ConsumerFenced(
                f"{', '.join(f'{topic}/{number}' for topic, number in self._lost)} went to another "
                f"member while this transaction was open: nothing of it is committed"
            )
        if self._command is None:
            self._positions = self._state.positions()
            self._command = self._state.commit(self._positions)
        return self._command

    def end(self, *, committed: bool) -> None:
        """The transaction is over."""
        self.is_open = False
        if committed:
            self._state.committed(self._positions)
