"""Bugs of a process that forks: its child hangs, uses what is the parent's, or keeps it."""

from __future__ import annotations

from typing import Final

from dledger.testing.mutants.plant import Mutant

_TESTS: Final = "tests/client/test_forks.py"
_GROUPS: Final = "tests/embedded/test_embedded_group.py"

FORKS: Final = (
    Mutant(
        "fork-is-not-counted", "P5", "forks", "_begin_child",
        "    generation += 1\n",
        "",
        "a child uses its parent's producer, which nobody sends from there",
        _TESTS,
    ),
    Mutant(
        "fork-locks-outlive-the-parent", "P5", "forks", "_begin_child",
        "            os.close(_locked.pop())\n",
        "            _locked.pop()\n",
        "a child keeps the lock of a group's directory after its parent was killed",
        _TESTS,
    ),
    Mutant(
        "fork-pipe-outlives-the-node", "P11", "forks", "open_pipe",
        "        _locked.add(write_end)\n",
        "        pass\n",
        "the starter and its children keep a node's end of the pipe, and nobody hears that the node has ended",
        "tests/client/test_forks.py",
    ),
    Mutant(
        "fork-lock-given-back-by-close-alone", "P5", "forks", "let_go",
        "fcntl.LOCK_UN",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "a forked child keeps a lock that its parent has given back",
        _TESTS,
    ),
    Mutant(
        "fork-producer-not-refused", "P5", "client.blocking.outflow", "Flow.check",
        "        forks.check_born_here(self._born, self._what)\n",
        "        return\n",
        "a producer from before the fork waits for ever in the child",
        _TESTS,
    ),
    Mutant(
        "fork-abort-reaches-the-parents", "P12", "client.blocking.staging", "Transaction.abort",
        " or self._stage.forked:",
        ":",
        "a child that ends its copy of a transaction aborts the parent's",
        _TESTS,
    ),
    Mutant(
        "fork-asyncio-abort-reaches-the-parents", "P12", "client.aio.producer", "AsyncTransaction.abort",
        " or self._stage.forked:",
        ":",
        "a child that ends its copy of a transaction cannot: it is refused",
        _TESTS,
    ),
    Mutant(
        "fork-reader-on-the-parents-connection", "P3", "client.protocol.resuming", "Resuming.__next__",
        "if self._born != forks.generation:",
        "if self._born > forks.generation:",
        "parent and child read one connection, and each gets what the other one asked for",
        _TESTS,
    ),
    Mutant(
        "fork-lanes-of-the-parent", "P1 P3", "client.blocking.client", "Client._notice_fork",
        "            lanes, self._lanes = self._lanes, deque()\n",
        "            lanes: list[BlockingTransport] = []\n",
        "a child talks on its parent's connections and numbers",
        _TESTS,
    ),
    Mutant(
        "fork-noticed-before-it-is-dealt-with", "P1 P5", "client.blocking.client", "Client._notice_fork",
        "            self._shared = None\n",
        "            self._pid = os.getpid()\n            self._shared = None\n",
        "a child whose first call is interrupted talks on its parent's connections and numbers from the second one on",
        _TESTS,
    ),
    Mutant(
        "fork-child-closes-as-its-parent", "P5", "client.aio.transport", "AsyncTransport.close",
        "        if self._born != forks.generation:\n            return\n",
        "",
        "a child that closes its copy of an asyncio client waits for its parent's connections, or ends them",
        _TESTS,
    ),
    Mutant(
        "fork-lane-of-the-parents-given-back", "P1 P3", "client.blocking.client", "Client._give_back",
        " or lane.born != forks.generation:",
        ":",
        "a child that reads on gives its parent's connections and numbers to its next call",
        _TESTS,
    ),
    Mutant(
        "fork-asyncio-client-on-the-parents-connections", "P1", "client.aio.transport", "AsyncTransport.rpc",
        '        forks.check_born_here(self._born, "the AsyncClient")\n',
        "",
        "an asyncio client writes into its parent's connections",
        _TESTS,
    ),
    Mutant(
        "fork-finds-locks-held", "P5", "forks", "fork_lock",
        "    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)\n",
        "",
        "a child waits for ever for a lock that another thread of its parent held",
        _TESTS,
    ),
    Mutant(
        "fork-loop-of-the-parent", "P5", "client.blocking.background_loop", "background",
        "        if _background is None or _background.pid != pid:",
        "        if _background is None:",
        "a child makes its producers on its parent's loop, which does not run there",
        _TESTS,
    ),
    Mutant(
        "fork-shared-client-of-the-parent", "P5", "client.blocking.pool", "shared_client",
        "if _born != forks.generation:",
        "if _born > forks.generation:",
        "a child shares its clients with its parent",
        _TESTS,
    ),
    Mutant(
        "fork-close-flushes-the-parents", "P5", "client.blocking.producer", "Producer.close",
        "        if self._flow.forked:\n            return\n",
        "",
        "a child that leaves its copy of a producer's block is refused, or waits for what its parent sends",
        _TESTS,
    ),
    Mutant(
        "fork-asyncio-close-flushes-the-parents", "P5", "client.aio.producer", "AsyncProducer.close",
        "        if self._flow.forked:\n            return\n",
        "",
        "a child that leaves its copy of an asyncio producer's block is refused",
        _TESTS,
    ),
    Mutant(
        "fork-child-ends-the-parents-group", "P5", "embedded.group", "EmbeddedGroup.stop",
        "        if self._born != forks.generation:\n            return\n",
        "",
        "a child that stops what its parent holds ends the group under it",
        _GROUPS,
    ),
    Mutant(
        "fork-child-ends-the-parents-node", "P5", "embedded.node", "EmbeddedNode.stop",
        "        if self._born != forks.generation:\n            return\n",
        "",
        "a child that leaves its copy of the application's block ends the application's node",
        _GROUPS,
    ),
    Mutant(
        "fork-child-starts-the-parents-node", "P5", "embedded.node", "EmbeddedNode.start",
        "        forks.check_born_here(self._born, repr(self))\n",
        "",
        "a child starts a node that it will never end",
        _GROUPS,
    ),
    Mutant(
        "fork-child-starts-the-parents-group", "P5", "embedded.group", "EmbeddedGroup.start",
        "        forks.check_born_here(self._born, repr(self))\n",
        "",
        "a child holds its parent's group by an object that never gives it up",
        _GROUPS,
    ),
    Mutant(
        "holds-of-a-deleted-group-count", "P5", "embedded.group", "EmbeddedGroup._key",
        "return self._born, str(self._home), self._group",
        'return self._born, str(self._home), ""',
        "a group whose directory was deleted and made anew is never ended by its holder",
        _GROUPS,
    ),
)  # fmt: skip
