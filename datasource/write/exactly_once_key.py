"""The exactly-once key of a write: the group commits one transaction for each writer id and
sequence, so a write that is run again under its key does nothing.

A key must be the same whenever Spark or the user runs the same write again, and another one for
each other write. A micro-batch has its query's id, which the checkpoint holds, and the batch's
number. Its topic belongs to the key, because a copied checkpoint may go on with another one. A
batch write has the name that its user gives, or a job's id, under which it is never repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

from dledger.catalog.clients.writers import JOB
from dledger.datasource.write.write_fence import WriteNote


@dataclass(frozen=True, slots=True)
class WriteTransaction:
    """Which transaction a write is, and the note that tells it from others of its batch."""

    writer_id: str
    sequence: int
    formerly: str = ""
    """The writer's name in release 0.1."""
    claim: WriteNote | None = None

    @property
    def may_be_repeated(self) -> bool:
        """Whether Spark or the user can run it again under this name."""
        return not self.writer_id.startswith(JOB)


def of_micro_batch(query_id: str | None, batch_id: int, topic: str) -> WriteTransaction:
    """The key of a micro-batch of ``writeStream``."""
    formerly = f"spark/{query_id}"
    return WriteTransaction(f"{formerly}/{topic}", batch_id, formerly)


def of_foreach_batch(query_id: str, batch_id: int, topic: str, txn_id: str) -> WriteTransaction:
    """The key of a write inside ``foreachBatch``; ``txn_id`` tells several to one topic apart."""
    return WriteTransaction(f"spark/{query_id}/{topic}/{txn_id}", batch_id)


def of_named_write(txn_id: str, topic: str) -> WriteTransaction:
    """The key of a batch write with the option ``txnId``."""
    return WriteTransaction(f"txn/{txn_id}/{topic}", 0, formerly=f"txn/{txn_id}")


def of_job(job: str) -> WriteTransaction:
    """The key of a batch write without a name: the next run of it has another one."""
    return WriteTransaction(f"{JOB}{job}", 0)
