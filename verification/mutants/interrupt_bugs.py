"""Bugs of a client whose calls end half way: by a signal handler, a cancellation, or a call that
meets another one."""

from __future__ import annotations

from typing import Final

from verification.mutants.plant import Mutant

_TESTS: Final = "tests/client/test_interrupts.py"

INTERRUPTS: Final = (
    Mutant(
        "interrupt-room-waited-for-with-the-lock",
        "P5",
        "client.blocking.producer",
        "Producer.append",
        "            self._check()\n",
        "            self._check()\n            self._flow.wait_for_room()\n",
        "a callback that appends stands behind a thread that waits for room, which only the "
        "callback's thread makes",
        _TESTS,
    ),
    Mutant(
        "interrupt-group-dropped-first",
        "P1",
        "client.protocol.record_accumulator",
        "RecordAccumulator._hand_over",
        "        size = 0\n",
        "        size = 0\n        self._groups.pop(group.partition, None)\n",
        "an interrupt while a batch is made drops the records of earlier appends, whose futures "
        "never end",
        _TESTS,
    ),
    Mutant(
        "interrupt-handed-over-twice",
        "P2",
        "client.blocking.outflow",
        "Flow.take",
        "            if not outgoing.taken:\n",
        "            if outgoing:\n",
        "what an interrupted call had handed over is sent once more by the next one",
        _TESTS,
    ),
    Mutant(
        "interrupt-lane-given-back",
        "P1 P2",
        "client.blocking.client",
        "Client._with_transport",
        "            transport.close()\n",
        "            self._transports.append(transport)\n",
        "the next append uses the number of an interrupted one: it is acknowledged, and never "
        "stored",
        f"{_TESTS} tests/verification/test_interrupt_campaign.py",
    ),
    Mutant(
        "interrupt-half-an-append-commits",
        "P12",
        "client.blocking.staging",
        "Stage.append_all",
        "self._check_failed()\n"
        "                # and there it stays if anything ends this call half way\n"
        "                self._tally.under_way.add(call)",
        "self._check_failed()",
        "a transaction commits a part of an append that was interrupted",
        _TESTS,
    ),
    Mutant(
        "interrupt-second-close-returns",
        "P1",
        "client.blocking.producer",
        "Producer.close",
        "        if self._flow.forked:\n",
        "        if self._flow.forked or self._closed:\n",
        "the close behind an interrupted one reports success while records are still on their way",
        _TESTS,
    ),
    Mutant(
        "interrupt-asyncio-second-close-returns",
        "P1",
        "client.aio.producer",
        "AsyncProducer.close",
        "        self._closed = True\n",
        "        if self._closed:\n            return\n        self._closed = True\n",
        "the close behind a cancelled one reports success while records are still on their way",
        _TESTS,
    ),
    Mutant(
        "interrupt-callback-waits-for-itself",
        "P5",
        "client.blocking.outflow",
        "Flow.wait_for_room",
        "if not self._background.here and not self._has_room():",
        "if not self._has_room():",
        "a callback that appends to a full producer waits for its own thread, and all producers "
        "with it",
        _TESTS,
    ),
    Mutant(
        "interrupt-callback-flushes",
        "P5",
        "client.blocking.background_loop",
        "Background.check_elsewhere",
        "        if self.here:\n",
        "        if self.here and self.loop.is_closed():\n",
        "a callback that flushes waits for its own thread, and all producers with it",
        _TESTS,
    ),
    Mutant(
        "interrupt-loop-never-woken",
        "P5",
        "client.blocking.outflow",
        "Flow._send",
        "            if not self._scheduled:\n",
        "            if not self._scheduled:\n                self._scheduled = True\n",
        "an interrupt while the loop is woken keeps every later append from it",
        _TESTS,
    ),
    Mutant(
        "interrupt-handler-in-the-middle",
        "P2",
        "client.blocking.producer",
        "Producer._ready",
        "if self._lock._is_owned():",
        "if self._lock is None:",
        "a signal handler that appends comes into the middle of the append that it interrupts",
        _TESTS,
    ),
    Mutant(
        "interrupt-taken-for-the-socket-s",
        "P1",
        "interrupts",
        "is_interrupt",
        "            return True\n",
        "            return False\n",
        "a handler's TimeoutError is taken for a node's silence, and the call goes on",
        "tests/client/test_handlers.py",
    ),
    Mutant(
        "interrupt-asyncio-half-an-append-commits",
        "P12",
        "client.aio.staging",
        "AsyncStage.append_all",
        ")\n"
        "            # and there it stays if anything ends this call half way\n"
        "            self._tally.under_way.add(call)",
        ")",
        "a transaction commits a part of an append that was cancelled",
        _TESTS,
    ),
    Mutant(
        "interrupt-reader-ends-in-silence",
        "P3",
        "client.protocol.resuming",
        "Resuming.__next__",
        "                self._running = None\n",
        "                self._end_of = self._end_of\n",
        "the turn behind an interrupted one says that nothing is left",
        "tests/client/test_resuming.py",
    ),
    Mutant(
        "interrupt-reader-goes-on-too-late",
        "P3",
        "client.protocol.resuming",
        "Resuming.__next__",
        "        self._position = end ",
        "        self._position = end + 1 ",
        "a reader that was interrupted leaves a record out",
        "tests/client/test_resuming.py",
    ),
    Mutant(
        "interrupt-asyncio-reader-begins-again",
        "P3",
        "client.protocol.resuming",
        "AsyncResuming.__anext__",
        "        self._position = self._end_of(found)\n",
        "",
        "a reader whose wait timed out gives records twice",
        "tests/client/test_resuming.py",
    ),
)
