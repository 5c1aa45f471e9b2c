"""DLedger's own index and checkpoint beside the entries of its log: looked at, and not changed."""

from __future__ import annotations

from pathlib import Path

from dledger.protocol.messages.entry import HEADER, HEADER_SIZE
from dledger.rocketmq.files.dledger_end import UNIT
from dledger.rocketmq.store.files import log_names, mapped, read_whole
from dledger.rocketmq.verify.queues import PUT_BACK, Problem
from dledger.storage.disk.file_names import file_name


class LedgerAudit:
    """The directory of a node of DLedger, which has ``index`` and ``checkpoint``.

    Args:
        directory: the node's.

    Raises:
        PathError, StorageError: it cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        folder = directory / "index"
        self._files = [(start, mapped(folder / file_name(start))) for start in log_names(folder)]
        self._wrong: list[int] = []
        self._last = -1
        """Index of the last entry."""

    def compare(self, head: memoryview) -> None:
        """Look for the index unit of an entry.

        Args:
            head: the entry's first bytes.
        """
        magic, size, index, term, pos, *_ = HEADER.unpack(head[:HEADER_SIZE])
        self._last = index
        at = index * UNIT.size
        start, data = next(
            ((one, data) for one, data in reversed(self._files) if one <= at), (0, b"")
        )
        if data[at - start : at - start + UNIT.size] != UNIT.pack(magic, pos, size, index, term):
            self._wrong.append(pos)

    def finish(self, log: Path) -> list[Problem]:
        """The problems of index, checkpoint, and of the log's end by these.

        Args:
            log: the log's last file.
        """
        problems = []
        last = self._last
        if self._wrong:
            reason = "there is no file of DLedger's index; DLedger makes it again"
            if self._files:
                reason = "entries of the log have no unit of DLedger's index, or another one"
            index = self._directory / "index"
            problems.append(Problem(index, reason, min(self._wrong), len(self._wrong)))
        for name in ("checkpoint", "checkpoint.bak"):
            problems += self._by_checkpoint(name, last, log)
        behind = self._behind(last)
        if behind:
            more = f"DLedger's index has {behind:,} more: {PUT_BACK}"
            reason = f"the log ends with entry {last}, and {more}"
            problems.append(Problem(log, reason, count=behind))
        return problems

    def _by_checkpoint(self, name: str, last: int, log: Path) -> list[Problem]:
        path = self._directory / name
        data = read_whole(path)
        if data is None:
            return []
        text = data.decode("ascii", "replace")
        says = dict(line.partition("=")[::2] for line in text.splitlines())
        number = says.get("committedIndex", "").strip()
        if not number.removeprefix("-").isdecimal():
            reason = "it says no committedIndex: DLedger then knows of nothing that is committed"
            return [Problem(path, reason)]
        if int(number) > last:
            more = f"{name} says that {number} is committed: {PUT_BACK}"
            reason = f"the log ends with entry {last}, and {more}"
            return [Problem(log, reason, count=int(number) - last)]
        return []

    def _behind(self, last: int) -> int:
        """How many units there are behind the last entry's."""
        count = 0
        for start, data in self._files:
            first = max(0, (last + 1) * UNIT.size - start)
            for at in range(first, len(data) - UNIT.size + 1, UNIT.size):
                magic, _, _, index, _ = UNIT.unpack(data[at : at + UNIT.size])
                if magic <= 0 or index * UNIT.size != start + at:
                    break
                count += 1
        return count
