"""What the pages share of the answers of a group."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from dledger.client import Client
from dledger.console.watch.samples import KEPT, NamedSamples, Sample
from dledger.console.watch.watched_group import WatchedGroup
from dledger.environment import Environment
from dledger.errors import PermissionDenied, Unavailable
from dledger.testing import InProcessGroup


class Clock(Environment):
    """A machine whose time is set by the test."""

    at_ms = 1000

    def now_ms(self) -> int:  # type: ignore[override]
        return self.at_ms

    def wall_us(self) -> int:  # type: ignore[override]
        return 1000 * self.at_ms


@pytest.fixture
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def test_fresh_answer_is_given_again_and_an_old_one_is_not(pool: Executor) -> None:
    clock, asked = Clock(), iter(range(9))
    sample = Sample(lambda: next(asked), pool, fresh_s=0.5, environment=clock)
    assert [sample.get().value, sample.get().value] == [0, 0]
    clock.at_ms += 499
    assert sample.get().value == 0
    clock.at_ms += 1
    assert sample.get().value == 1
    sample.forget()
    assert sample.get().value == 2


def test_error_leaves_the_former_answer_with_its_time(pool: Executor) -> None:
    clock, answers = Clock(), [Unavailable("gone"), 7]

    def ask() -> int:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    sample = Sample(ask, pool, environment=clock)
    assert (sample.get().value, sample.get().error) == (7, "")
    clock.at_ms += 5000
    told = sample.get(30)
    assert (told.value, told.time_s, told.error) == (7, 1.0, "gone")
    assert sample.get() == told  # a group that does not answer is not asked by every page anew


def test_what_may_not_be_seen_any_more_is_not_kept(pool: Executor) -> None:
    answers = [PermissionDenied("no"), 7]

    def ask() -> int:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    sample = Sample(ask, pool, fresh_s=0)
    assert sample.get().value == 7
    told = sample.get()
    assert (told.value, told.error) == (None, "no")


def test_former_answer_is_shown_while_the_next_one_does_not_come(pool: Executor) -> None:
    clock, asked, go_on = Clock(), threading.Semaphore(0), threading.Event()
    answers = iter(range(9))

    def ask() -> int:
        answer = next(answers)
        if answer == 1:
            asked.release()
            assert go_on.wait(30)
        return answer

    sample = Sample(ask, pool, environment=clock)
    assert sample.get().value == 0
    clock.at_ms += 5000
    assert [sample.get(0).value, sample.get(0).value] == [0, 0]
    assert asked.acquire(timeout=30)
    assert not asked.acquire(blocking=False)  # one question is on its way, not two
    go_on.set()
    assert sample.get(30).value == 1


def test_answer_of_before_a_change_is_not_taken_for_one_of_afterwards(pool: Executor) -> None:
    asked, go_on = threading.Event(), threading.Event()
    answers = iter(range(9))

    def ask() -> int:
        answer = next(answers)
        if answer == 1:
            asked.set()
            assert go_on.wait(30)
        return answer

    sample = Sample(ask, pool, fresh_s=0)
    assert sample.get().value == 0
    before = sample.start()
    assert before is not None
    assert asked.wait(30)
    sample.forget()
    assert sample.get().value == 2
    go_on.set()
    before.result(30)
    assert sample.last.value == 2


def test_samples_with_names_are_asked_at_once() -> None:
    """None waits for another one that does not answer."""
    together = threading.Barrier(3, timeout=30)

    def ask(name: str) -> str:
        together.wait()
        return name

    with ThreadPoolExecutor(3) as pool:
        found = NamedSamples(ask, pool).get_all(["a", "b", "c"])
        assert [one.value for one in found] == ["a", "b", "c"]


def test_samples_with_names_are_not_kept_without_end(pool: Executor) -> None:
    asked: list[str] = []
    samples = NamedSamples(lambda name: asked.append(name) or name, pool)
    for at in range(KEPT + 1):
        assert samples.get(f"g{at}").value == f"g{at}"
    samples.get(f"g{KEPT}")
    assert len(asked) == KEPT + 1
    samples.get("g0")
    assert asked[-1] == "g0"


def test_topics_made_anew_have_no_rate_below_zero(log: InProcessGroup, client: Client) -> None:
    watched = WatchedGroup(log.bootstrap_servers)
    try:
        client.create_topic("anew")
        client.append("anew", [b"x"] * 10)
        watched.topics.get()
        client.delete_topic("anew")
        client.create_topic("anew")
        watched.changed()
        now = watched.topics.get().value
        assert now is not None
        assert all(rate.records >= 0 for rate in now.rated.values())
    finally:
        watched.close()
