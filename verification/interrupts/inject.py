"""Exceptions of signal handlers, at points of the main thread that a seed chooses.

Python looks for signals at some bytecodes only: calls, backward jumps, beginnings of functions. A
trace function that raised an exception itself would end code at points where no signal can; so it
only marks the signal as come, and Python runs the handler where it next would.
"""

from __future__ import annotations

import signal
import socket
import sys
from _thread import interrupt_main
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, Final


class Interrupt(Exception):
    """An exception of the user's own."""


KINDS: Final = (
    KeyboardInterrupt, SystemExit, Interrupt, TimeoutError, ConnectionResetError, InterruptedError,
    OSError, ValueError, KeyError, IndexError,
)  # fmt: skip
"""Exceptions that handlers raise. Sockets and locks raise some of these, too; a handler's exception
must not be taken for theirs."""
SECOND_WITHIN: Final = 80
"""Trace events between an interrupt and the next one, which meets the handling of the first."""
_SIGNALS: Final = (signal.SIGUSR1,)


_PROGRAM: Final[dict[str, Any]] = {"__name__": "program"}
# handlers are the user's code, and not of this package
exec("def end(error):\n    raise error\n", _PROGRAM)


class Injector:
    """Calls functions, and interrupts some of them.

    Attributes:
        asked: how often a call was made, by its name.
        fired: how often a handler raised in one.
        problems: exceptions that the called code swallowed or changed.
    """

    def __init__(self, dice: Random) -> None:
        self.asked: Counter[str] = Counter()
        self.fired: Counter[str] = Counter()
        self.seconds = 0
        self.problems: list[str] = []
        self._dice = dice
        self._lengths: dict[str, int] = {}
        self._left = 0
        self._seen = 0
        self._again = 0
        self._handled = 0
        self._opcodes = False
        self._raised: list[BaseException] = []
        self._ignored: list[BaseException] = []
        self._inside = False
        self._name = ""
        self._tracer = self._trace
        """One object all the time: Python 3.11 does not keep the one that is under way."""

    def __enter__(self) -> Injector:
        # what is collected unclosed is warned of by C code that looks for signals, and drops what
        # their handlers raise
        socket.socket.__del__ = _close_collected  # type: ignore[attr-defined]
        self._before = [
            signal.signal(one, self._handle) for one in (signal.SIGUSR1, signal.SIGALRM)
        ]
        self._hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        return self

    def __exit__(self, *_: object) -> None:
        sys.unraisablehook = self._hook
        del socket.socket.__del__  # type: ignore[attr-defined]
        for one, before in zip((signal.SIGUSR1, signal.SIGALRM), self._before, strict=True):
            signal.signal(one, before)

    def _unraisable(self, unraisable: Any) -> None:
        # a handler ran within a destructor, where Python drops exceptions
        if unraisable.exc_value in self._raised:
            self._ignored.append(unraisable.exc_value)
        else:
            self._hook(unraisable)

    def call(self, name: str, function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        """The result of the function, or the interrupt that ended it.

        Raises:
            Exception: what the function raised by itself.
        """
        self.asked[name] += 1
        self._begin(name)
        try:
            self._inside = True
            if self._left:
                sys.settrace(self._tracer)
            result = function()
            self._inside = False
        except BaseException as error:
            self._inside = False
            self._end()
            if not self._raised:
                raise
            if not any(error is one for one in self._raised) and not self._by_library(error):
                if not self._felt:
                    raise
                self.problems.append(f"{name}: {self._raised[-1]!r} came out as {error!r}")
            return None, error
        self._end()
        if self._felt:
            self.problems.append(f"{name}: {self._raised[-1]!r} was swallowed")
        return result, None

    @staticmethod
    def _in_library(error: BaseException) -> bool:
        """Whether the frame that caught it is none of ours: sockets take some errors for their
        enums'."""
        trace = error.__traceback__
        return trace is not None and not _is_ours(trace.tb_frame)

    @property
    def _felt(self) -> bool:
        """Whether any interrupt had to come out of the call."""
        return any(one not in self._ignored and not self._in_library(one) for one in self._raised)

    def _by_library(self, error: BaseException) -> bool:
        """Whether it is a library's answer to the interrupt: codecs wrap it, Arrow takes it for a
        refusal."""
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        ours = at is not None and _is_ours(at.tb_frame)
        return not ours or any(
            type(error) is type(one) and str(one) in str(error) for one in self._raised
        )

    def _begin(self, name: str) -> None:
        self._name, self._raised, self._ignored = name, [], []
        self._seen = self._left = self._again = self._handled = 0
        dice = self._dice
        if dice.random() < 0.6:
            self._opcodes = dice.random() < 0.5
            length = self._lengths.get(name, 400) * (8 if self._opcodes else 1)
            self._left = dice.randrange(1, length + 2)
            self._again = dice.randrange(1, SECOND_WITHIN) if dice.random() < 0.3 else 0
        elif dice.random() < 0.3:
            signal.setitimer(
                signal.ITIMER_REAL, dice.choice((1e-5, 1e-4, 1e-3, 1e-2)) * dice.random() + 1e-6
            )

    def _end(self) -> None:
        sys.settrace(None)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self._seen and not self._raised:  # it ended before the point came: a call of its length
            seen = self._seen // (8 if self._opcodes else 1)
            self._lengths[self._name] = (self._lengths.get(self._name, seen) + seen) // 2

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._inside or self._handled > 1 or (frame and frame.f_code is _DROPS):
            return
        error = self._dice.choice(KINDS)(f"interrupt {self._handled + 1} in {_places(frame)}")
        if self._handled:
            self.seconds += 1
            if frame is not None and frame.f_code is _PROGRAM["end"].__code__:
                # it came into the first one's handler, which has not raised and never will
                self._raised.pop()
        self._raised.append(error)
        self.fired[self._name] += 1
        self._handled += 1
        if self._again and self._handled == 1:
            self._left = self._again
            while frame is not None and frame.f_code is not _CALL:
                frame.f_trace, frame.f_trace_opcodes = self._tracer, self._opcodes
                frame = frame.f_back
            sys.settrace(self._tracer)
        _PROGRAM["end"](error)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename == __file__:
            return None
        if self._opcodes:
            frame.f_trace_opcodes = True
        self._seen += 1
        if self._left:
            self._left -= 1
            if not self._left:
                # This function must not run again before the handler has: it would run in here, at
                # a point where the traced code cannot be interrupted. For the same reason nothing
                # may follow the mark.
                outer: FrameType | None = frame
                while outer is not None:
                    outer.f_trace = None
                    outer = outer.f_back
                sys.settrace(None)
                [*map(interrupt_main, _SIGNALS)]
                return None
        return self._tracer


def _close_collected(this: socket.socket) -> None:
    if getattr(this, "_io_refs", None) is not None:  # else it was interrupted while it was made
        this.close()


def _is_ours(frame: FrameType) -> bool:
    """Whether it runs code of the product or of its verification, and none that was made for it."""
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return package in {"dledger", "verification"} and frame.f_code.co_filename[0] != "<"


def _places(frame: FrameType | None) -> str:
    """Where it is, from the inside out."""
    found = []
    while frame is not None and frame.f_code is not _CALL:
        found.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(found[:6])


_CALL: Final = Injector.call.__code__
_DROPS: Final = Injector._unraisable.__code__
"""Python drops what is raised in here."""
