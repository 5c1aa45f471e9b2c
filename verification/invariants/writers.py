"""The effects of committed transactions, followed apart from any catalog: W1.

A transaction is (writer, sequence), and takes effect once. A writer's last one, made again, changes
nothing; where its commit says count and digest of its rows (`CommitWrite`), other rows or an older
sequence are refused. A node's catalog knows each writer's last commit, or that of the hash of its
name, over restarts and in catalogs that were taken over.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dledger.catalog.clients.writers import JOB
from dledger.catalog.results import CommandResult
from dledger.protocol.messages.catalog_commands import CommitTransaction, CommitWrite
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import Entry
from dledger.protocol.wire import decode_command
from dledger.records.body.header import BODY_HEADER_SIZE
from verification.invariants.broken import Broken
from verification.invariants.view import WatchedNode

NO_COMMIT: Final = -1


class Last(NamedTuple):
    """The last commit of a writer. ``digest`` is empty where it gave none."""

    sequence: int = NO_COMMIT
    records: int = 0
    digest: str = ""


class Known:
    """The state that the commits up to some entry make. A repeat may make its writer the newest one
    or not. So it counts as old as its commit, and as newer than all writers that committed before
    the repeat."""

    def __init__(self) -> None:
        self.last: dict[str, Last] = {}
        self._committed: dict[str, int] = {}
        """The entry of each writer's last commit."""
        self._touched: dict[str, int] = {}
        """The entry of its last commit or repeat."""

    def take(self, index: int, name: str, last: Last, is_repeat: bool) -> None:
        self.last[name] = last
        self._touched[name] = index
        if not is_repeat or name not in self._committed:
            self._committed[name] = index

    def may_be_forgotten(self, name: str, most: int) -> bool:
        """Writers give way to so many others, and their hashes to as many again. Names of jobs are
        never used again."""
        if name.startswith(JOB):
            return True
        since = self._committed.get(name)
        if since is None:
            return False
        newer = [
            other for other, at in self._touched.items() if at > since and not other.startswith(JOB)
        ]
        return len(newer) - (name in newer) >= 2 * most - most // 100


class Writers:
    """Every commit of every writer."""

    def __init__(self) -> None:
        self._done: list[tuple[int, str, Last, bool]] = []
        """Entry, writer, its last commit from then on, and whether it was a repeat."""
        self._known = Known()

    def applied(self, view: WatchedNode, entry: Entry, result: CommandResult) -> None:
        """The first node has applied a command."""
        command = decode_command(entry.body[BODY_HEADER_SIZE:])
        if (
            not isinstance(command, CommitTransaction | CommitWrite)
            or result.code is Code.MALFORMED
        ):
            return
        name, last = command.writer_id, self._known.last
        known = last.get(name, Last())
        got, wanted = _got(result), _wanted(known, command)
        is_right = got == wanted or (got == "refused" and wanted == "new")
        if not is_right and self._is_certain(command, view.catalog.transactions.writers.most):
            text = (
                f"commit {command.sequence} of {name} is {got}: {result}; it has to be "
                f"{wanted} behind {known}"
            )
            raise Broken("W1", f"{view}: {text}")
        if got == "new":
            records = sum(part.records for part in command.stages)
            self._note(
                entry.index, name, Last(command.sequence, records, getattr(command, "digest", ""))
            )
        elif got == "repeated" and isinstance(command, CommitWrite):
            known = last.get(name) or last.get(command.formerly, known)
            self._note(
                entry.index,
                name,
                known._replace(digest=known.digest or command.digest),
                is_repeat=True,
            )

    def _note(self, index: int, name: str, last: Last, *, is_repeat: bool = False) -> None:
        self._done.append((index, name, last, is_repeat))
        self._known.take(*self._done[-1])

    def _is_certain(self, command: CommitTransaction | CommitWrite, most: int) -> bool:
        """Whether what was committed before says it: the name that an earlier release gave the
        writer counts for some topics and not for others."""
        is_renamed = isinstance(command, CommitWrite) and command.formerly in self._known.last
        return not is_renamed and not self._known.may_be_forgotten(command.writer_id, most)

    def check(self, view: WatchedNode) -> None:
        """W1: the catalog of a node knows what each writer has committed last."""
        catalog = view.catalog
        writers = catalog.transactions.writers
        known = Known()
        for one in self._done:
            if one[0] <= catalog.applied_index:
                known.take(*one)
        for name, wanted in known.last.items():
            found = writers.find(name)
            has = None if found is None else Last(found.sequence, found.records, found.digest)
            if has != wanted and not known.may_be_forgotten(name, writers.most):
                raise Broken(
                    "W1", f"{view} knows {has} of writer {name}, which has committed {wanted}"
                )


def _wanted(known: Last, command: CommitTransaction | CommitWrite) -> str:
    if command.sequence > known.sequence:
        return "new"
    if isinstance(command, CommitTransaction):
        return "repeated"
    is_same = not known.digest or (known.records, known.digest) == (command.records, command.digest)
    return "repeated" if command.sequence == known.sequence and is_same else "another"


def _got(result: CommandResult) -> str:
    if result.code is Code.SUCCESS:
        return "repeated" if result.result["repeated"] else "new"
    return "another" if result.code is Code.REPLAY_MISMATCH else "refused"
