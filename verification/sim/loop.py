"""Virtual time: one scheduler for everything, and an asyncio loop for each simulated process.

Events are ordered by (time, number), never by identity. A process runs a turn of its loop as an
event: all callbacks that were ready when it began, as asyncio does. It can be killed (its
callbacks, threads and connections vanish) and paused (they are held), and has a clock of its own
that drifts and a wall clock that jumps.
"""

from __future__ import annotations

import asyncio
import asyncio.events
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from verification.disk.memory_disk import ProcessKilled
from verification.sim.disk_waits import DiskWaits
from verification.sim.executors import Executors
from verification.sim.rng import Rng
from verification.sim.scheduler import SECOND, US, Action, Clock, Handle, Scheduler, _set_running
from verification.sim.turns import Turns

NOT_DUE: Final = -1
_running = asyncio.events._get_running_loop
Callback = Callable[..., object]


class Wires(Protocol):
    """See `verification.sim.network.Network`."""

    def listen(self, loop: Any, factory: Callable[[], Any], host: str, port: int) -> Any: ...

    async def connect(self, loop: Any, factory: Callable[[], Any], host: str, port: int) -> Any: ...


class SimLoop(asyncio.AbstractEventLoop):
    """The loop of one process."""

    def __init__(
        self, scheduler: Scheduler, network: Wires, name: str, clock: Clock, rng: Rng
    ) -> None:
        self.name = name
        self.scheduler = scheduler
        self.network = network
        self.clock = clock
        self.rng = rng
        self.dead = False
        self.paused = False
        self.after_callback: Callable[[], None] | None = None
        self.on_defect: Callable[[str, BaseException | None], None] = _raise
        self.latency_ns: Callable[[], int] = lambda: 50 * US
        """How long a piece of background work takes, beside what the disk adds to it."""
        self.spent_ns = 0
        """The cost of disk operations since it was last set to 0."""
        self.tasks: list[asyncio.Task[Any]] = []
        self._prune_at = 64
        self._ready: deque[Handle] = deque()
        self._take_turn = self._turn
        self._turn_at_ns = NOT_DUE
        """When the next turn begins; that of the one that runs, while it does."""
        self._busy_until_ns = 0
        self.posted: list[Handle] | None = None
        """The callbacks that the running thread has handed to the loop; None: the loop runs."""
        self._held: list[tuple[Action, tuple[Any, ...]]] = []
        self.disk_waits = DiskWaits(scheduler)
        self.turns = Turns(self)
        self.executors = Executors(self, self.turns)
        self.in_callback = False
        """Whether the process itself runs, and not a check of it."""

    # --- life -------------------------------------------------------------------------------------

    def kill(self) -> None:
        """End the process: no callback of it runs any more."""
        self.dead = True
        self._ready.clear()
        self._held.clear()
        self.turns.bury()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        held, self._held = self._held, []
        for action, arguments in held:
            self.scheduler.after(0, action, *arguments)
        if self._ready:
            self._wake()

    def hurry(self) -> None:
        """The disk that it waits for is quick again: its wait ends, however slow the disk was when
        the operation began."""
        if self._busy_until_ns > self.scheduler.now_ns:
            self._busy_until_ns = self.scheduler.now_ns
            self._turn_at_ns = NOT_DUE
            if self._ready:
                self._wake()
        self.disk_waits.hurry()

    def hold(self, action: Action, *arguments: Any) -> bool:
        """Whether the process cannot do this now: it does it after its pause, or never when it is
        dead."""
        if self.paused and not self.dead:
            self._held.append((action, arguments))
        return self.dead or self.paused

    def waiting(self) -> list[str]:
        """Where each task waits, from the outermost coroutine to the innermost one."""
        return [" > ".join(_awaiting(task.get_coro())) for task in self.tasks if not task.done()]

    def dispose(self) -> None:
        """Close all tasks that never ended, so that no code of them runs when memory is freed."""
        self.kill()
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if not task.done():
                coroutine = task.get_coro()
                try:
                    if coroutine is not None:
                        coroutine.close()
                except BaseException:  # errors of a dead process do not count
                    continue
        self.tasks.clear()

    # --- running ----------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._turn_at_ns == NOT_DUE and not self.paused:
            self._turn_at_ns = when_ns = self._busy_until_ns
            self.scheduler.at(when_ns, self._take_turn, when_ns)

    def _turn(self, when_ns: int) -> None:
        if when_ns != self._turn_at_ns or self.dead:  # `hurry` let it begin before
            return
        if self.paused:
            self._turn_at_ns = NOT_DUE
            return
        ready, scheduler, after_callback = self._ready, self.scheduler, self.after_callback
        if _running() is not self:
            _set_running(self)
        scheduler.speaker = self.name
        self.spent_ns = 0
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            scheduler.events += 1
            self.in_callback = True
            try:
                handle._callback(*handle._args)
            except ProcessKilled:
                return
            except Exception as error:
                if self.dead:
                    return  # type: ignore[unreachable]
                self.on_defect(f"a callback of {self.name} failed", error)
            finally:
                self.in_callback = False
            if self.dead:  # by what it has just done
                return  # type: ignore[unreachable]
            if after_callback is not None:
                after_callback()
        self._busy_until_ns = scheduler.now_ns + self.spent_ns
        self._turn_at_ns = NOT_DUE
        if ready:
            self._wake()

    def deliver(self, handles: list[Handle]) -> None:
        """The callbacks that a thread handed over arrive."""
        if self.dead or not handles:
            return
        self._ready.extend(handles)
        self._wake()

    # --- asyncio: what it may ask for besides (``how``) makes no difference here ------------------

    def call_soon(self, callback: Callback, *args: Any, **how: Any) -> Handle:  # type: ignore[override]
        handle = Handle(callback, args, 0.0)
        if not self.dead:
            self._ready.append(handle)
            if self._turn_at_ns == NOT_DUE:
                self._wake()
        return handle

    def call_soon_threadsafe(self, callback: Callback, *args: Any, **how: Any) -> Handle:  # type: ignore[override]
        if self.posted is None:
            return self.call_soon(callback, *args)
        handle = Handle(callback, args, 0.0)
        self.posted.append(handle)
        return handle

    def call_later(self, delay: float, callback: Callback, *args: Any, **how: Any) -> Handle:  # type: ignore[override]
        return self.call_at(self.time() + delay, callback, *args)

    def call_at(self, when: float, callback: Callback, *args: Any, **how: Any) -> Handle:  # type: ignore[override]
        handle = Handle(callback, args, when)
        if not self.dead:
            self.scheduler.at(self.clock.global_ns(int(when * SECOND)), self._due, handle)
        return handle

    def _due(self, handle: Handle) -> None:
        if not handle._cancelled and not self.dead:
            self._ready.append(handle)
            self._wake()

    def time(self) -> float:
        return self.clock.local_ns() / SECOND

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, **how: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name or "task")
        self.tasks.append(task)
        if len(self.tasks) > self._prune_at:
            self.tasks = [known for known in self.tasks if not known.done()]
            self._prune_at = max(64, 2 * len(self.tasks))
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        return self.executors.run(executor, func, args)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **how: Any
    ) -> Any:
        return await self.network.connect(self, protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **how: Any
    ) -> Any:
        return self.network.listen(self, protocol_factory, host, port)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An error of a future that was never retrieved, or the like."""
        if not self.dead:
            self.on_defect(str(context.get("message")), context.get("exception"))


def _awaiting(coroutine: Any) -> list[str]:
    names: list[str] = []
    while coroutine is not None and len(names) < 20:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None)
        if frame is not None:
            names.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
    return names


def _raise(text: str, error: BaseException | None) -> None:
    raise RuntimeError(text) from error
