"""A term that somebody made absurd is lowered on stopped nodes, and only there and then."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from dledger.errors import ConfigError, PathError
from dledger.protocol.messages.entry import HardState
from dledger.storage.offline.reset_term import MARGIN, reset_terms
from dledger.types import MAX_TERM, TERM_JUMP, Index, NodeId, Term
from verification.disk.memory_disk import MemoryDisk, kills

WIRE_MAX = (1 << 63) - 1
ROOTS = [Path(f"/disk/n{number}") for number in range(3)]


def make(
    kit, disk: MemoryDisk, root: Path, term: int, log_term: int = 3, group: str = "default"
) -> None:
    """A stopped node in ``term`` whose log ends in ``log_term``."""
    store = kit.open(disk, directory=root, node_id=NodeId(root.name), group=group)
    if log_term >= 0:
        kit.fill(store, [100, 100], term=log_term)
    store.save_hard_state(HardState(Term(term), NodeId("n1"), Index(-1)))
    store.close()


def state_of(kit, disk: MemoryDisk, root: Path) -> HardState:
    store = kit.open(disk, directory=root, node_id=NodeId(root.name))
    state = store.hard_state
    store.close()
    return state


def test_all_members_get_one_term_behind_every_log_with_their_votes_spent(kit, disk):
    for root, term, log_term in zip(ROOTS, (WIRE_MAX, MAX_TERM, 9), (3, 7, 5), strict=True):
        make(kit, disk, root, term, log_term)
    done = reset_terms(ROOTS, disk=disk)
    known = [(one.node_id, one.was, one.log_term) for one in done]
    assert known == [("n0", WIRE_MAX, 3), ("n1", MAX_TERM, 7), ("n2", 9, 5)]
    assert {one.term for one in done} == {7 + MARGIN}
    assert MARGIN < TERM_JUMP, "a member with an empty disk must believe the terms that follow"
    for root in ROOTS:
        state = state_of(kit, disk, root)
        assert (state.term, state.voted_for) == (7 + MARGIN, root.name)


def test_killed_reset_is_said_again_or_has_reset_all_that_are_astray(kit):
    """A member that is not astray may keep its lower term then: it takes the others' as any."""
    terms = (WIRE_MAX, MAX_TERM, 9)

    def prepare() -> tuple[MemoryDisk]:
        disk = MemoryDisk()
        for root, term in zip(ROOTS, terms, strict=True):
            make(kit, disk, root, term)
        return (disk,)

    again = 0
    for (disk,) in kills(prepare, lambda disk: reset_terms(ROOTS, disk=disk), least=6):
        disk.reboot(power=True)
        with suppress(ConfigError):  # no term is astray any more
            reset_terms(ROOTS, disk=disk)
            again += 1
        for root in ROOTS[:2]:
            state = state_of(kit, disk, root)
            assert (state.term, state.voted_for) == (3 + MARGIN, root.name)
        assert state_of(kit, disk, ROOTS[2]).term in {9, 3 + MARGIN}
    assert again


def test_entries_and_the_commit_hint_stay_as_they_are(kit, disk):
    make(kit, disk, ROOTS[0], WIRE_MAX)
    store = kit.open(disk, directory=ROOTS[0])
    entries, hint = kit.bytes_of(kit.all(store)), store.hard_state.commit_hint
    store.close()
    reset_terms(ROOTS[:1], disk=disk)
    store = kit.open(disk, directory=ROOTS[0])
    assert kit.bytes_of(kit.all(store)) == entries
    assert store.hard_state.commit_hint == hint
    store.close()


def test_a_term_that_is_a_lawful_step_from_its_log_is_not_lowered(kit, disk):
    make(kit, disk, ROOTS[0], 3 + TERM_JUMP)
    with pytest.raises(ConfigError, match="no term here is astray"):
        reset_terms(ROOTS[:1], disk=disk)
    assert state_of(kit, disk, ROOTS[0]).term == 3 + TERM_JUMP


def test_a_running_node_is_refused_and_no_other_one_is_changed(kit, disk):
    for root in ROOTS[:2]:
        make(kit, disk, root, WIRE_MAX)
    store = kit.open(disk, directory=ROOTS[1], node_id=NodeId("n1"))
    with pytest.raises(PathError, match="/disk/n1 is in use"):
        reset_terms(ROOTS[:2], disk=disk)
    store.close()
    assert state_of(kit, disk, ROOTS[0]).term == WIRE_MAX


def test_nodes_of_two_groups_or_one_node_twice_are_refused(kit, disk):
    make(kit, disk, ROOTS[0], WIRE_MAX)
    make(kit, disk, ROOTS[1], WIRE_MAX, group="other")
    with pytest.raises(ConfigError, match="not the members of one group"):
        reset_terms(ROOTS[:2], disk=disk)
    with pytest.raises(PathError, match=r"in use|runs on this store"):
        reset_terms([ROOTS[0], ROOTS[0]], disk=disk)


def test_members_elsewhere_are_given_the_same_term(kit, disk):
    make(kit, disk, ROOTS[0], WIRE_MAX)
    make(kit, disk, ROOTS[1], 9)
    assert reset_terms(ROOTS[:2], 50, disk=disk)[0].term == 50
    assert [state_of(kit, disk, root).term for root in ROOTS[:2]] == [50, 50]


def test_a_given_term_is_neither_below_a_log_nor_below_a_sound_nodes_own(kit, disk):
    make(kit, disk, ROOTS[0], WIRE_MAX)
    make(kit, disk, ROOTS[1], 9)
    with pytest.raises(ConfigError, match="the log ends in term 3"):
        reset_terms(ROOTS[:1], 2, disk=disk)
    with pytest.raises(ConfigError, match="which is not astray"):
        reset_terms(ROOTS[:2], 8, disk=disk)
    with pytest.raises(ConfigError, match="the log ends in term 3"):
        reset_terms(ROOTS[:1], MAX_TERM, disk=disk)


def test_log_with_own_entries_of_the_last_terms_is_refused(kit, disk):
    """The error says that their term cannot be taken back."""
    make(kit, disk, ROOTS[0], WIRE_MAX, log_term=MAX_TERM)
    with pytest.raises(ConfigError, match="cannot be taken back"):
        reset_terms(ROOTS[:1], disk=disk)


def test_a_directory_without_a_store_is_refused(disk):
    with pytest.raises(PathError, match="no log here"):
        reset_terms([Path("/disk/none")], disk=disk)
