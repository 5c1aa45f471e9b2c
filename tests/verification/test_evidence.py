"""The page of evidence says what the campaigns' results say, and is the one that these results
make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from verification.evidence.page import page, promises_of, results_in
from verification.evidence.promises import PROMISES
from verification.result import result, save

DOCS = Path(__file__).parents[2] / "docs"
IN_DOCS = (DOCS / "guarantees.md").read_text()

GUARANTEES = """# Guarantees

## P1 Acknowledged is kept

Text. Tests: `tests/a.py::one`,
`tests/b.py::two`, `tests/a.py::one`.

## P13 What is not promised

## Deviations

`tests/c.py::other`
"""


def made(campaign: str = "sim", *, ok: bool = True, **more: object) -> dict[str, object]:
    counted = {"figures": {"seeds": 2000, "hours": 1.5}, "faults": {"cut": 1234}}
    return result(campaign, command="make sim", ok=ok, **counted, **more)


def test_promises_are_the_sections_of_the_guarantees_with_their_tests():
    first, last = promises_of(GUARANTEES)
    assert (first.name, first.title) == ("P1", "Acknowledged is kept")
    assert first.tests == ("tests/a.py::one", "tests/b.py::two")
    assert (last.name, last.tests) == ("P13", ())


def test_page_shows_volume_faults_tests_and_gaps_of_each_promise():
    text = page(GUARANTEES, [made(table=[["id", "seeds"], ["M1", 7]])])
    campaigns, promises = text.split("## Promises")
    assert "### sim: everything held" in campaigns
    assert "2,000 seeds, 1.5 hours" in campaigns
    assert "cut 1,234" in campaigns
    assert "| id | seeds |\n|---|---|\n| M1 | 7 |" in campaigns
    first, last = promises.split("### P13")
    assert "2,000 seeds" in first
    assert "`tests/b.py::two`" in first
    assert PROMISES["P1"].missing in first
    assert "2,000 seeds" not in last


def test_red_result_is_red_in_both_places_and_names_its_problems():
    text = page(GUARANTEES, [made(ok=False, problems=["seed 7: I1"])])
    assert text.count("**RED**") == 2
    assert "- seed 7: I1" in text


def test_simulator_runs_with_other_seeds_are_added_up_and_named_singly():
    first = {**made(), "commit": "aaaaaaa", "command": "sim --first 1"}
    second = made(ok=False, problems=["seed 3001: I3"])
    second |= {"commit": "bbbbbbb", "command": "sim --first 2001", "faults": {"cut": 1, "loss": 2}}
    text = page(GUARANTEES, [first, second])
    assert text.count("### sim: **RED**") == 1
    assert "`sim --first 1` at aaaaaaa, " in text
    assert "`sim --first 2001` at bbbbbbb, " in text
    assert "- 4,000 seeds, 3.0 hours\n- faults that bit: cut 1,235, loss 2\n- seed 3001: I3" in text
    assert "- sim at aaaaaaa, bbbbbbb: **RED** 4,000 seeds, 3.0 hours" in text


def test_campaign_that_no_promise_names_is_refused():
    with pytest.raises(KeyError, match="no promise names the campaign 'dance'"):
        page(GUARANTEES, [made("dance")])


def test_results_are_read_back_as_they_were_saved(tmp_path):
    save(made(), tmp_path / "b.json")
    save(made(ok=False), tmp_path / "a.json")
    assert [found["ok"] for found in results_in(tmp_path)] == [False, True]


def test_every_promise_of_the_guarantees_says_what_is_not_covered():
    assert {promise.name for promise in promises_of(IN_DOCS)} == set(PROMISES)


def test_page_in_docs_is_the_one_that_its_results_make():
    """Whoever changes a guarantee or adds a result runs ``make evidence``."""
    results = results_in(DOCS / "evidence")
    assert page(IN_DOCS, results) == (DOCS / "evidence.md").read_text()
    for found in results:
        assert re.fullmatch(r"[0-9a-f]{7,40}", found["commit"]), (
            "a result of a tree with changes shows nothing"
        )


def test_page_says_what_no_campaign_has_in_its_world() -> None:
    _, _, rest = page(IN_DOCS, []).partition("## What is not in these worlds\n")
    section = rest.partition("\n## ")[0]
    for campaign in ("simulator", "chaos", "judges", "mutants"):
        assert f"- {campaign}: " in section
