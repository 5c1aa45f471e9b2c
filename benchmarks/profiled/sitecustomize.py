"""Profiles each thread of a process in whose PYTHONPATH this directory is.

Python imports a module of this name when it starts. The directory `DIRECTORY` names is where
profiles are asked for and laid down: the file ``take-NAME`` asks every process for one, and
``PID-NAME.pickle`` has by thread and function (calls, seconds without those of its callees).
"""

import cProfile
import os
import pickle
import threading
import time
from pathlib import Path
from typing import Any, Final

DIRECTORY: Final = "DLEDGER_PROFILES"
LOOK_S: Final = 0.05


def function_name(code: Any) -> str:
    """File, line and name of Python's; the name of C's."""
    if isinstance(code, str):
        return code
    return f"{code.co_filename}:{code.co_firstlineno}:{code.co_name}"


def taken(profile: cProfile.Profile) -> dict[str, tuple[int, float]]:
    """What it has counted so far."""
    found: dict[str, tuple[int, float]] = {}
    for entry in profile.getstats():
        name = function_name(entry.code)
        calls, seconds = found.get(name, (0, 0.0))
        found[name] = calls + entry.callcount, seconds + entry.inlinetime
    return found


def profile_threads(directory: Path) -> None:
    """Begin now, and anew in each forked child; a thread of its own answers."""
    profiles: dict[str, cProfile.Profile] = {}
    answering: list[threading.Thread] = []

    def profiled(name: str) -> cProfile.Profile:
        return profiles.setdefault(name, cProfile.Profile())

    def answer() -> None:
        done: set[str] = set()
        while True:
            time.sleep(LOOK_S)
            for asked in directory.glob("take-*"):
                if asked.name in done:
                    continue
                done.add(asked.name)
                name = f"{os.getpid()}-{asked.name.removeprefix('take-')}"
                found = {thread: taken(one) for thread, one in list(profiles.items())}
                (directory / f"{name}.part").write_bytes(pickle.dumps(found))
                (directory / f"{name}.part").rename(directory / f"{name}.pickle")

    run = threading.Thread.run

    def run_profiled(thread: threading.Thread) -> None:
        if thread in answering:
            run(thread)
        else:
            profiled(thread.name).runcall(run, thread)

    def begin() -> None:
        answering[:] = [threading.Thread(target=answer, name="profiles", daemon=True)]
        answering[0].start()
        profiled("main").enable()

    def begin_in_child() -> None:
        profiled("main").disable()
        profiles.clear()
        begin()

    threading.Thread.run = run_profiled  # type: ignore[method-assign, assignment]
    os.register_at_fork(after_in_child=begin_in_child)
    begin()


if DIRECTORY in os.environ:
    profile_threads(Path(os.environ[DIRECTORY]))
