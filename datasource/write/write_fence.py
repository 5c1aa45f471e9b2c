"""Which write of a foreachBatch batch goes by which name, noted for one run of a query.

When a batch is run again after a crash, its write finds its transaction committed and does nothing:
that is what makes it exactly-once. A second write of the same batch under the same name would find
the same and lose its records. To tell the two, a write that has been committed notes so in a file
of the driver's temporary directory, under the run's id: a run after a crash has another id and
starts without notes. The file is made atomically and names its write, so neither a write that is
asked twice nor two writes at once can be mistaken.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from dledger.errors import ConfigError, PathError

KEPT_S: Final = 30 * 24 * 3600
"""Notes of runs that have written nothing for so long are removed by the next run."""


@dataclass(frozen=True, slots=True)
class WriteNote:
    """One write's name in one batch of one run."""

    run_id: str
    batch_id: int
    group: str
    """Address of the log: equal names in two logs are two writes."""
    name: str
    topic: str
    job: str
    """Names this very write."""

    @property
    def target(self) -> str:
        """The topics of the write, for messages."""
        return "the topics of column 'topic'" if self.topic == "*" else f"topic {self.topic!r}"


def check_claim(claim: WriteNote) -> None:
    """Refuse a write whose name another write of this batch, or a later batch, has used in this
    run.

    Raises:
        ConfigError: with the way out.
    """
    for batch_id, file in _notes(claim):
        if batch_id > claim.batch_id:
            raise ConfigError(
                f"a write to {claim.target} belongs to batch {claim.batch_id} of its query, which "
                f"is at batch {batch_id}: it was left running by foreachBatch, and a repeat could "
                "not be told from it. Let foreachBatch wait for its writes"
            )
        if batch_id == claim.batch_id and file.read_text() != claim.job:
            raise ConfigError(
                f"batch {claim.batch_id} writes to {claim.target} twice, and a repeat of the "
                "batch could not tell the two writes apart: give each one its own name, as in "
                ".option('txnId', 'late-orders'), or unite the frames and write once"
            )


def claim(claim: WriteNote) -> None:
    """Note that this write was committed.

    Raises:
        ConfigError: another write was noted under this name meanwhile.
        PathError: the temporary directory cannot be trusted.
    """
    folder = _folder(claim)
    if not folder.exists():
        _make(folder)
    draft = folder / f".{claim.job}"
    with open(draft, "w", opener=partial(os.open, mode=0o600)) as out:
        out.write(claim.job)
    try:
        # atomic, with its content; fails when it is there
        os.link(draft, folder / f"{_key(claim)}-{claim.batch_id}")
    except FileExistsError:
        check_claim(claim)
    finally:
        draft.unlink(missing_ok=True)
    for batch_id, file in _notes(claim):
        if batch_id < claim.batch_id:
            file.unlink(missing_ok=True)


def _folder(claim: WriteNote) -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    run = hashlib.sha256(claim.run_id.encode()).hexdigest()[:24]
    return Path(tempfile.gettempdir()) / f"dledger-spark-{user}" / run


def _key(claim: WriteNote) -> str:
    return hashlib.sha256(f"{claim.group}\0{claim.name}".encode()).hexdigest()[:24]


def _notes(claim: WriteNote) -> list[tuple[int, Path]]:
    """Batches of this run that have a write of this name."""
    return [
        (int(file.name.rpartition("-")[2]), file)
        for file in _folder(claim).glob(f"{_key(claim)}-*")
    ]


def _make(folder: Path) -> None:
    top = folder.parent
    top.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and top.lstat().st_uid != os.getuid():
        raise PathError(
            f"{top} belongs to somebody else: remove it, or set TMPDIR to a directory of your own"
        )
    folder.mkdir(mode=0o700, exist_ok=True)
    for other in top.iterdir():
        if other.stat().st_mtime < time.time() - KEPT_S:
            shutil.rmtree(other, ignore_errors=True)
