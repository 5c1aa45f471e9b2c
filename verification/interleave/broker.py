"""The files of a RocketMQ broker under the scheduler, on a disk and with locks whose operations are
switching points."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from dledger.errors import OffsetOutOfRange
from dledger.rocketmq.ha import follower as follow
from dledger.rocketmq.store.files import FileHandles
from dledger.rocketmq.store.mapped_file_queue import MappedFileQueue
from verification.disk_states.promise import require
from verification.interleave.disk import Image, Style, SwitchingDisk
from verification.interleave.node import Loop
from verification.interleave.scenarios import LOG, Run, Scenario

ROOT: Final = Path("/broker")
FILE: Final = 100


class Files:
    """A log of bytes in files of a broker, and the part of it that was called durable."""

    def __init__(self, run: Run) -> None:
        rng = run.rng.fork("disk")
        style = Style(rng.chance(300_000), rng.pick((None, rng.below)))
        self._disk = SwitchingDisk(Image({}, set()), style)
        self._disk.scheduler = run.scheduler
        self._disk.loses_directories = True
        self.queue = self._open()
        self._logs = [b""]
        """All that it has been; the last one is what it is, or is about to be."""
        self._done = 0
        """Number of the last one that was reached."""
        self._cuts = self._cuts_done = 0
        self._sure = 0
        run.life.was_damaged = True  # the store beside it has nothing to do with it
        run.at_start.append(lambda disk: self._found())

    def _open(self) -> MappedFileQueue:
        return MappedFileQueue(ROOT / "log", FILE, handles=FileHandles(disk=self._disk))

    @property
    def max_offset(self) -> int:
        return self.queue.max_offset

    @property
    def sound_offset(self) -> int:
        """All bytes are sound here; see `dledger.rocketmq.ha.checked_log`."""
        return self.queue.max_offset

    def append(self, size: int) -> None:
        log = self._logs[-1]
        data = bytes((len(self._logs) * 31 + n) % 251 + 1 for n in range(size))
        self._logs.append(log + data)
        self.queue.append(data)
        self._done = len(self._logs) - 1

    def cut(self, end: int) -> None:
        log = self._logs[-1]
        if end < len(log):
            self._sure = min(self._sure, end)
            self._cuts += 1
            self._logs.append(log[:end])
            self.queue.truncate_dirty(end)
            self._cuts_done += 1
            self._done = len(self._logs) - 1

    def flush(self) -> None:
        self.queue.flush()

    def flush_and_tell(self) -> None:
        """Flush: all bytes from before are durable behind it, unless there was a cut meanwhile."""
        cuts, end = self._cuts_done, len(self._logs[self._done])
        self.queue.flush()
        if cuts == self._cuts:
            self.told(end)

    def told(self, end: int) -> None:
        """Everything in front of ``end`` is said to be durable.

        Raises:
            BrokenPromise: a power cut may take some of it.
        """
        log = self._logs[-1]
        require(end <= len(log), f"byte {end} is said to be durable, the log ends at {len(log)}")
        for start in range(0, end, FILE):
            require(
                self._disk.holds(self.queue.path(start), 0, min(end - start, FILE)),
                f"bytes up to {end} are told durable, and no sync "
                f"that began after they were written has covered those from {start} on",
            )
        self._sure = max(self._sure, end)

    def read(self, begin: int, size: int) -> None:
        """Raises:
        BrokenPromise: these bytes were not there at any moment of it.
        """
        first = self._done
        try:
            found = self.queue.read(begin, size)
        except OffsetOutOfRange:
            shortest = min(map(len, self._logs[first:]))
            require(begin + size > shortest, f"bytes {begin} to {begin + size} are said to be gone")
            return
        known = any(log[begin : begin + size] == found for log in self._logs[first:])
        require(known, f"bytes {begin} to {begin + size} are served as they have not been")

    def _found(self) -> None:
        self._disk.scheduler = None
        self._disk.cut_power()
        if self._sure:
            found = self._open().read(0, self._sure)
            require(
                found == self._logs[-1][: self._sure],
                f"{self._sure} bytes were durable, and are other ones now",
            )


def log_files(run: Run) -> None:
    """One thread appends and cuts, others flush and read."""
    files, rng = Files(run), run.rng
    sizes = [rng.between(1, 130) for _ in range(rng.between(2, 4))]
    calls: list[Callable[[], object]] = [partial(files.append, size) for size in sizes]
    if run.now_and_then():
        calls.insert(rng.between(1, len(calls)), partial(files.cut, rng.below(150)))
    run.thread("writer", *calls)
    run.thread("flush", *run.times(files.flush_and_tell, 3))
    if run.now_and_then():
        run.thread(
            "reader", *[partial(files.read, rng.below(60), rng.between(1, 120)) for _ in range(2)]
        )


class Job:
    """A call in another thread, which a coroutine waits for."""

    def __init__(self, loop: FollowLoop, call: Callable[[], object]) -> None:
        self.loop, self.call = loop, call

    def __await__(self) -> Generator[Job, None, None]:
        yield self


class FollowLoop:
    """The loop of a slave: received bytes are appended, and flushed in a thread, one flush after
    the other."""

    def __init__(self, run: Run, files: Files, sizes: list[int]) -> None:
        self._scheduler, self._files = run.scheduler, files
        self._follower = follow.BrokerFollower(files, "127.0.0.1:1")  # type: ignore[arg-type]
        self._is_flushing = False
        vars(follow)["asyncio"] = SimpleNamespace(get_running_loop=lambda: self)
        run.at_last.append(lambda: vars(follow).update(asyncio=ASYNCIO))
        self._loop = Loop(run.scheduler, [partial(self._receive, size) for size in sizes])

    def _receive(self, size: int) -> None:
        self._files.append(size)
        if not self._is_flushing:
            self._is_flushing = True
            self._go_on(self._follower._flush())

    def _go_on(self, flush: Coroutine[Job, None, int]) -> None:
        try:
            job = flush.send(None)
        except StopIteration as ended:
            self._is_flushing = False
            self._files.told(ended.value)
            return

        def work() -> None:
            job.call()
            self._loop.call_soon_threadsafe(self._go_on, flush)

        self._scheduler.spawn("ha-flush", work)

    def run_in_executor(self, _: object, call: Callable[[], object]) -> Job:
        """See `asyncio.AbstractEventLoop`."""
        return Job(self, call)


ASYNCIO: Final = vars(follow)["asyncio"]


def reports(run: Run) -> None:
    """A slave tells its master how far it has flushed, while more comes."""
    FollowLoop(run, Files(run), [run.rng.between(1, 130) for _ in range(run.rng.between(2, 5))])


BROKER_SCENARIOS: Final = (
    Scenario("a broker's log", LOG, log_files),
    Scenario("a slave's report", LOG, reports),
)
