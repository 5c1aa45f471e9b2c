"""Kills at each operation of a process on names of real files, and which names a power cut may take
back."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger.interrupts import STAND_IN

CHANGES = ("mkdir", "rename", "replace", "unlink", "rmdir", "link")


class Killed(BaseException):
    """As SIGKILL, after which nothing is cleared away."""


class Names:
    """What the process does to names, and the directories in which the disk does not have that
    yet."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.unsynced: set[Path] = set()
        self._left = -1
        """Operations until the process is killed; negative: it is not."""
        self.before_unlink: Callable[[Path], None] = lambda path: None
        patch.setattr(sys.modules[__name__.partition(".")[0]], STAND_IN, True, raising=False)
        for name in CHANGES:
            patch.setattr(os, name, self._changing(name, getattr(os, name)))
        for name, real in (("open", os.open), ("fsync", os.fsync)):
            patch.setattr(os, name, getattr(self, f"_{name}")(real))
        patch.setattr(shutil, "rmtree", self._changing("rmtree", shutil.rmtree))

    def killed(self, at: int, act: Callable[[], object]) -> bool:
        """Whether the process is killed in front of this operation of ``act``; False where that has
        come to its end before."""
        self.kill_in(at)
        try:
            act()
        except Killed:
            return True
        finally:
            self._left = -1
        return False

    def kill_in(self, operations: int) -> None:
        """The process is killed behind so many more."""
        self._left = operations

    def _step(self) -> None:
        if self._left == 0:  # and whatever it does then, it does not do
            raise Killed
        self._left -= 1

    def _changing(self, name: str, real: Callable[..., None]) -> Callable[..., None]:
        def change(path: Path, *rest: object, **more: object) -> None:
            if "dir_fd" in more:  # within a tree that is removed, which is one step here
                real(path, *rest, **more)
                return
            self._step()
            if name == "unlink":
                self.before_unlink(Path(path))
            real(path, *rest, **more)
            targets = [one for one in rest if isinstance(one, str | Path)]
            self.unsynced.update(Path(one).parent for one in (path, *targets))

        return change

    def _open(self, real: Callable[..., int]) -> Callable[..., int]:
        def opened(path: Path, flags: int, *rest: object, **more: object) -> int:
            if flags & os.O_CREAT:
                self._step()
                self.unsynced.add(Path(path).parent)
            return real(path, flags, *rest, **more)

        return opened

    def _fsync(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            self._step()
            real(descriptor)
            self.unsynced.discard(Path(f"/proc/self/fd/{descriptor}").readlink())

        return sync
