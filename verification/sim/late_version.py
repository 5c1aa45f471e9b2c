"""A group that began without a version, because its first leader was gone, or its disk full, before
all members had been there: it refuses what an operator asks for, who upgrades it then. A group
whose version is raised by `verification.sim.stepping` waits for that."""

from __future__ import annotations

from typing import Final

from dledger.client.aio.client import AsyncClient
from dledger.errors import DLedgerError
from verification.sim.settings import SeedPlan

WORDS: Final = "run 'dledger upgrade'"


class LateVersion:
    """One operator's knowledge of it."""

    def __init__(self, plan: SeedPlan) -> None:
        self._should_be = plan.begins_with_version
        self._is_missing = False

    def refused(self, error: DLedgerError) -> None:
        """A request came to this."""
        self._is_missing |= self._should_be and WORDS in str(error)

    async def upgrade(self, client: AsyncClient) -> None:
        """Upgrade the group, if a request was refused since it has no version.

        Raises:
            DLedgerError: that did not succeed; the next call tries again.
        """
        if self._is_missing:
            await client.upgrade_group()
            self._is_missing = False
