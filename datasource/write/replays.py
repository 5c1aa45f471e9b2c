"""The messages to a user when a write is run again under a name that has committed."""

from __future__ import annotations

import logging
from typing import Final

from dledger.client import Committed
from dledger.errors import ReplayMismatch
from dledger.times import utc

LOGGER: Final = logging.getLogger("dledger.spark")
KEEP: Final = (
    "set option 'onReplayMismatch' to keep: what was committed stands, and these rows "
    "are not written"
)


def explain(writer_id: str, error: ReplayMismatch) -> str:
    """The text of an error for a write with other rows than those that were committed under its
    name."""
    if writer_id.startswith("txn/"):
        txn_id = writer_id.split("/")[1]
        return (
            f"{error}. Option 'txnId' {txn_id!r} names one write to a topic. Give this one a name "
            f"of its own; or, if it is the same write, {KEEP}"
        )
    return (
        f"{error}. A batch that is run again must have the rows that it had. Its checkpoint was "
        "restored from an older copy, or copied for a query that runs beside this one, or the "
        "query was changed, or gives other rows each time. Nothing was written. To go on, put "
        "the newest checkpoint back; or give the query a new checkpointLocation, and say in its "
        f"source's starting offsets what it has not written yet; or {KEEP}"
    )


def tell_kept(error: ReplayMismatch) -> None:
    """Warn of rows that were not written, because option ``onReplayMismatch`` is keep."""
    LOGGER.warning(
        "%s; what was committed stands, and these rows are not written: 'onReplayMismatch' is keep",
        error,
    )


def tell_repeated(writer_id: str, sequence: int, done: Committed) -> None:
    """Warn where a repeat is not what a user expects of a query that starts again."""
    if not done.repeated:
        return
    when = f" on {utc(done.committed_ms)}" if done.committed_ms else ""
    if writer_id.startswith("txn/"):
        LOGGER.warning(
            "option 'txnId' %r: this write was committed already%s, %d rows, and nothing is "
            "written now",
            writer_id.split("/")[1],
            when,
            done.records,
        )
    if not done.checked:
        LOGGER.warning(
            "batch %d of %s was committed already%s by an earlier release, which has left no "
            "digest of its rows: it is taken for the same one",
            sequence,
            writer_id,
            when,
        )
