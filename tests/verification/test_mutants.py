"""Planted bugs: each stands where the registry says, and one of them is always looked for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dledger.errors import ConfigError
from verification.mutants.__main__ import CATCHERS, as_dict, catcher_of, hunt_for, hunts
from verification.mutants.hunt import Hunt
from verification.mutants.plant import (
    CRASH_STATES,
    SCHEDULES,
    SIMULATED,
    Mutant,
    mutated,
    source_of,
)
from verification.mutants.planted import planted_in
from verification.mutants.registry import CANARY, MUTANTS

TOP = Path(__file__).resolve().parents[2]
SIMULATOR_FINDS = [mutant.name for mutant in MUTANTS if mutant.catcher in SIMULATED]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_planted_bug_changes_one_place_and_still_compiles(mutant: Mutant):
    """A registry that has rotted would plant nothing and find it."""
    source, changed = source_of(mutant.module), mutated(mutant)
    assert changed != source
    assert len(changed) - len(source) == len(mutant.replacement) - len(mutant.pattern)
    compile(changed, mutant.module, "exec")


BUG = """caught by: tests/x.py

small-quorum (B6, planted blind)
    half of the members are a quorum
    in raft.state.quorum_ack_checker:
    -     return 1
    -
    + max(1,
    +     members // 2)
"""


def test_text_of_a_planted_bug_is_read_as_it_stands(tmp_path: Path):
    (tmp_path / "one.txt").write_text(
        f"# A file.\n\n{BUG}\nnext (D1)\n    why\n    in types: f\n    - a\n"
    )
    first, second = planted_in(tmp_path / "one.txt")
    assert first == Mutant(
        "small-quorum",
        "B6",
        "raft.state.quorum_ack_checker",
        "",
        "    return 1\n",
        "max(1,\n    members // 2)",
        "half of the members are a quorum",
        "tests/x.py",
        planted_blind=True,
    )
    assert (second.name, second.function, second.replacement) == ("next", "f", "")


@pytest.mark.parametrize(
    ("given", "instead", "complaint"),
    [
        (" (B6, planted blind)", "", "one.txt:3: a bug has a name"),
        ("    in raft", "    at raft", "one.txt:3: a bug has a name"),
        ("    + max(1,", "    max(1,", "begins with '- ' or '+ ': 'max"),
        ("    + max(1,", "    +max(1,", "begins with '- ' or '+ '"),
    ],
)
def test_text_that_is_no_bug_is_refused_with_its_line(
    tmp_path: Path, given: str, instead: str, complaint: str
):
    (tmp_path / "one.txt").write_text(BUG.replace(given, instead))
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        list(planted_in(tmp_path / "one.txt"))


def test_planted_bugs_have_names_of_their_own_and_say_what_they_stand_for():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 48
    stood_for = {name for mutant in MUTANTS for name in mutant.stands_for.split()}
    classes = {f"B{n}" for n in range(1, 37)} | {f"D{n}" for n in range(1, 16)}
    promises = {f"P{n}" for n in range(1, 17)}
    assert stood_for - promises == classes
    assert all(mutant.stands_for for mutant in MUTANTS)
    assert all(mutant.why for mutant in MUTANTS)


def test_tests_that_have_to_find_a_planted_bug_are_there():
    campaigns = {*SIMULATED, CRASH_STATES, SCHEDULES}
    catchers = " ".join({mutant.catcher for mutant in MUTANTS} - campaigns).split()
    assert [path for path in catchers if not (TOP / path.partition("::")[0]).exists()] == []


def test_seed_that_is_red_without_the_bug_does_not_count_as_a_find():
    """Else every bug would be found by the first seed that shows one of the program itself."""

    def search(name: str, first: int, seeds: int) -> Hunt:
        red = next((seed for seed in (3, 7, 40) if seed >= first), 0)
        ends = first <= red < first + seeds
        return Hunt(name, red - first + 1 if ends else seeds, 1.0, "I3" if ends else "", "")

    name = SIMULATOR_FINDS[0]
    assert hunt_for(name, 30, search, lambda seed: seed == 3) == Hunt(name, 7, 2.0, "I3", "")
    assert hunt_for(name, 30, search, lambda seed: seed < 30) == Hunt(name, 30, 3.0, "", "")
    assert hunt_for(name, 7, search, lambda seed: True) == Hunt(name, 7, 2.0, "", "")


@pytest.mark.parametrize(
    ("function", "pattern", "complaint"),
    [
        ("Core.no_such", "x", "has no Core.no_such"),
        ("RaftState.hard_state", "no such words", "stands 0 times"),
        ("RaftState.hard_state", "self.", "not once"),
    ],
)
def test_pattern_that_does_not_stand_there_once_is_refused(
    function: str, pattern: str, complaint: str
):
    with pytest.raises(ConfigError, match=complaint):
        mutated(Mutant("m", "B1", "raft.state.raft_state", function, pattern, "", ""))


def test_bug_is_not_planted_into_a_module_that_runs_already():
    script = (
        "import dledger.raft.state.raft_state\nfrom verification.mutants.plant import plant\n"
        "from verification.mutants.registry import named\nplant(named('vote-not-saved'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "is imported already" in done.stderr


def test_survivor_makes_the_campaign_red_and_is_named():
    found = [
        Hunt(SIMULATOR_FINDS[0], 3, 1.0, "I7", ""),
        Hunt(SIMULATOR_FINDS[1], 500, 300.0, "", ""),
    ]
    summary = as_dict(found, 500)
    assert not summary["ok"]
    assert summary["problems"] == [f"{SIMULATOR_FINDS[1]} was not caught by 500 seeds"]
    assert summary["figures"]["seeds at the median"] == 3


def test_bugs_are_counted_by_who_finds_them():
    """A bug that a test named for it finds says less than one that a campaign finds by itself."""
    names = {catcher_of(mutant.name): mutant.name for mutant in MUTANTS}
    assert tuple(sorted(names)) == tuple(sorted(CATCHERS))
    figures = as_dict([Hunt(name, 3, 1.0, "I7", "") for name in names.values()], 500)["figures"]
    assert [figures[f"caught by {whom}"] for whom in CATCHERS] == [1, 1, 1, 1]


def test_other_packages_have_bugs_planted_before_their_tests_were_seen():
    """These are the packages outside the simulator."""
    blind = {mutant.module.partition(".")[0] for mutant in MUTANTS if mutant.planted_blind}
    assert blind >= {"rocketmq", "client", "records", "embedded", "datasource", "streaming"}
    assert sum(mutant.planted_blind for mutant in MUTANTS) >= 109


def test_canary_is_caught():
    """If the simulator does not find this one, it finds nothing: red."""
    (hunt,) = hunts([CANARY], 40, 1)
    assert hunt.caught_by, f"{CANARY} was not caught in {hunt.seeds} seeds"
