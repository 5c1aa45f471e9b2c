"""Which write of a foreachBatch batch goes by which name, noted for one run of a query.

When a batch is run again after a crash, its write finds its transaction committed and does nothing: that is what makes
it exactly-once. A second write of the same batch under the same name would find the same and lose its records. To tell
the two, a write that has been committed notes so in a file of the driver's temporary directory, under the run's id:
a run after a crash has another id and starts without notes. The file is made atomically and names its write, so
neither a write that is asked twice nor two writes at once can be mistaken.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger.errors import ConfigError

KEPT_BATCHES: Final = 2
"""Notes of so many batches of a run are kept; older batches of it are never run again."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One write's name in one batch of one run."""

    run_id: str
    batch_id: int
    group: str
    """Address of the log: equal names in two logs are two writes."""
    name: str
    topic: str
    job: str
    """Names this very write."""


def _folder(claim: Claim) -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    run = hashlib.sha256(claim.run_id.encode()).hexdigest()[:24]
    return Path(tempfile.gettempdir()) / f"dledger-spark-{user}" / run


def _file(claim: Claim) -> Path:
    name = hashlib.sha256(f"{claim.group}\0{claim.name}".encode()).hexdigest()[:24]
    return _folder(claim) / f"{claim.batch_id}-{name}"


def check_claim(claim: Claim) -> None:
    """Refuse a write whose name another write of this batch and run has used.

    Raises:
        ConfigError: with the way out.
    """
    with suppress(FileNotFoundError):
        if _file(claim).read_text() != claim.job:
            raise ConfigError(
                f"batch {claim.batch_id} writes to topic {claim.topic!r} twice, and a repeat of the batch could not "
                "tell the two writes apart: give each one its own name, as in .option('txnId', 'late-orders'), or "
                "unite the frames and write once"
            )


def claim(claim: Claim) -> None:
    """Note that this write was committed.

    Raises:
        ConfigError: another write was noted under this name meanwhile.
    """
    file = _file(claim)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f".{claim.job}")
    draft.write_text(claim.job)
    try:
        os.link(draft, file)  # atomic, with its content, and fails when the name is taken
    except FileExistsError:
        check_claim(claim)
    finally:
        draft.unlink(missing_ok=True)
    for old in file.parent.iterdir():
        batch = old.name.partition("-")[0]
        if batch.isdecimal() and int(batch) <= claim.batch_id - KEPT_BATCHES:
            old.unlink(missing_ok=True)


__all__ = ["Claim", "check_claim", "claim"]
