"""The campaign that kills consumers: a small share of it, and what its judge calls wrong."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from verification.members.campaign import judge, run

KEY = 1 << 32


def book(folder: Path, number: int, *steps: list[Any]) -> None:
    lines = [json.dumps(step) + "\n" for step in steps]
    (folder / f"member-{number}").write_text("".join(lines))


def judged(folder: Path, end: int = 10) -> list[str]:
    problems: list[str] = []
    judge(folder, Counter({0: end}), problems)
    return problems


def test_partition_that_changes_hands_behind_a_commit_is_right(tmp_path: Path) -> None:
    asked, acked = [2, "asked", "a", {KEY: 5}], [3, "acked", {KEY: 5}]
    book(tmp_path, 1, [1, "handed", KEY, "a", 1, 0, 7], asked, acked)
    book(tmp_path, 2, [4, "handed", KEY, "b", 2, 5, 5])
    problems: list[str] = []
    assert judge(tmp_path, Counter({0: 10}), problems) == (12, 2)
    assert problems == []


@pytest.mark.parametrize(
    ("step", "invariant"),
    [
        ([1.5, "handed", KEY, "b", 2, 0, 10], "G1: a of group members, epoch 1"),
        ([4, "handed", KEY, "b", 2, 6, 4], "G2: b of group members, epoch 2"),
        ([4, "handed", KEY, "b", 2, 4, 6], "G2: b of group members, epoch 2"),
        ([4, "handed", KEY, "b", 2, 5, 4], "acknowledged records were handed to nobody"),
        ([4, "asked", "a", {KEY: 8}], "G2: group members"),
    ],
)
def test_what_must_not_be_is_found(tmp_path: Path, step: list[Any], invariant: str) -> None:
    first, second = [1, "handed", KEY, "a", 1, 0, 5], [1.7, "handed", KEY, "a", 1, 5, 2]
    asked, acked = [2, "asked", "a", {KEY: 5}], [3, "acked", {KEY: 5}]
    book(tmp_path, 1, first, second, asked, acked)
    book(tmp_path, 2, step)
    assert judged(tmp_path)[0].startswith(invariant)


@pytest.mark.cluster
def test_members_leaders_and_nodes_are_killed_and_nothing_is_left_out(tmp_path: Path) -> None:
    found = run(tmp_path, 5, 3, lambda text: None)
    assert found["problems"] == []
    assert found["figures"]["acknowledged records"] > 1000
