"""The real clocks, dice and background threads."""

from __future__ import annotations

import platform
import threading
from typing import Any

import pytest

from dledger.environment import REAL, host_is_here


def test_a_worker_is_given_all_jobs_in_order_and_ends_after_the_last() -> None:
    seen: list[tuple[list[Any], bool]] = []
    worker = REAL.worker("test", lambda jobs, last: seen.append((jobs, last)))
    for job in range(5):
        worker.put(job)
    worker.start()
    worker.join()
    assert [job for jobs, _ in seen for job in jobs] == [0, 1, 2, 3, 4]
    assert [last for _, last in seen] == [False] * (len(seen) - 1) + [True]


def test_a_worker_that_was_never_started_can_be_joined() -> None:
    worker = REAL.worker("test", lambda jobs, last: None)
    worker.put(1)
    worker.join()


def test_a_worker_turns_again_without_a_job_when_it_asked_for_that() -> None:
    turns: list[int] = []
    second = threading.Event()

    def turn(jobs: list[Any], last: bool) -> float | None:
        turns.append(len(jobs))
        if len(turns) == 2:
            second.set()
        return 0.0 if len(turns) == 1 else None

    worker = REAL.worker("test", turn)
    worker.start()
    worker.put("job")
    second.wait()
    worker.join()
    assert turns[:2] == [1, 0]


def test_the_pause_of_a_worker_ends_at_once_when_it_is_joined() -> None:
    done = threading.Event()
    worker = REAL.worker("test", lambda jobs, last: done.set(), pause_s=3600.0)
    worker.start()
    worker.put("job")
    done.wait()
    worker.join()


def test_dice_stay_in_their_range() -> None:
    assert {REAL.below(3) for _ in range(200)} == {0, 1, 2}
    assert all(0 <= REAL.fraction() < 1 for _ in range(100))
    assert len({REAL.unique() for _ in range(100)}) == 100
    assert all(len(REAL.unique()) == 32 for _ in range(10))


@pytest.mark.parametrize(
    "host", ["box", "BOX", "Box.lan", "localhost", "127.0.0.1", "127.3.2.1", "::1"]
)
def test_machine_knows_its_short_and_full_name_and_own_addresses(host: str) -> None:
    assert host_is_here(host, "box")
    assert host_is_here(host, "box.lan")


@pytest.mark.parametrize("host", ["boxes", "other.box", "box.north", "192.0.2.1", "2001:db8::1"])
def test_a_machine_takes_other_names_and_addresses_for_others(host: str) -> None:
    """The addresses are those that are reserved for documentation."""
    assert not host_is_here(host, "box.south")


def test_the_real_machine_is_known_by_the_name_it_gives_itself() -> None:
    assert REAL.is_here(platform.node())


@pytest.mark.parametrize(
    ("called", "error"), [("ip_address", ValueError("stop")), ("socket.socket", OSError("stop"))]
)
def test_exception_of_a_signal_handler_is_no_answer_of_where_a_host_is(
    monkeypatch: pytest.MonkeyPatch, called: str, error: Exception
) -> None:
    """It comes into the call from the program's own code."""
    program: dict[str, Any] = {"__name__": "program", "error": error}
    exec("def handler():\n    raise error\n", program)

    def interrupted(*_: Any) -> Any:
        program["handler"]()

    monkeypatch.setattr(f"dledger.environment.{called}", interrupted)
    with pytest.raises(type(error)) as caught:
        host_is_here("192.0.2.1", "own")
    assert caught.value is error
