"""Bugs of what a group keeps and lets go: retention, what consumer groups hold back, members that
are heard late."""

from __future__ import annotations

from typing import Final

from verification.mutants.plant import Mutant

WORLD: Final = (
    Mutant(
        "retention-takes-staged",
        "B34",
        "node.maintenance.retention",
        "Retention.retain",
        "self._catalog.retention_floor() - 1",
        "self._catalog.retention_floor()",
        "a file that ends with the first batch of an open stage goes",
        "tests/verification/test_sim_retention.py",
    ),
    Mutant(
        "hold-forgets-staged",
        "B34",
        "catalog.topics.partition",
        "Partition.needed_from",
        "self._number(row, APPLIED) - self.lateness",
        "self._number(row, INDEX)",
        "a group holds back its first unread record, and not those that lie in front of it",
        "tests/catalog/test_catalog_groups.py",
    ),
    Mutant(
        "hold-in-no-snapshot",
        "B34",
        "catalog.snapshot",
        "_encode_groups",
        "if group.committed_ms or group.holds else []",
        "if group.committed_ms else []",
        "a restart forgets that a group holds retention back",
    ),
    Mutant(
        "late-answer-expels",
        "B30",
        "raft.roles.leader",
        "Leader._check_kept",
        "response.round < follower.check_round",
        "response.round + 1 < follower.check_round",
        "an answer that left before the check is taken for lost data",
    ),
    Mutant(
        "stage-by-wall-clock",
        "D10 B3",
        "node.proposals.timestamps",
        "stamp_time",
        "clocks.now_ms() if isinstance(command, TIMED) else clocks.label_ms()",
        "clocks._environment.wall_ms()",
        "a jump of the leader's wall clock makes time-outs as long as the jump",
    ),
    Mutant(
        "step-ends-stage",
        "D10 B3",
        "node.proposals.clocks",
        "Clocks._may_step_to",
        "self._catalog.transactions.stages or ",
        "",
        "a wall clock that is ahead ends open stages at once",
        "tests/verification/test_sim_clocks.py",
    ),
    Mutant(
        "lagging-stamp-ends-stage",
        "D10 B3",
        "node.proposals.clocks",
        "Clocks.now_ms",
        " or term != self._led_in",
        "",
        "a new leader ends a stage early that the one before has stamped with a clock that was "
        "behind",
        "tests/verification/test_sim_clocks.py",
    ),
    Mutant(
        "early-stamp-ends-stage",
        "D10 B3",
        "node.proposals.proposal_queue",
        "ProposalQueue._is_stamped_too_soon",
        "if (\n"
        "            proposal.command is None\n"
        "            or not has_time(proposal.command)\n"
        "            or (term is not None and proposal.stamped_in == term)\n"
        "        ):",
        "if True or not has_time(proposal.command) or (term is not None and proposal.stamped_in == "
        "term):",
        "a new leader ends a stage early by a command that it stamps before it knows what the one "
        "before has stamped",
        "tests/verification/test_sim_clocks.py",
    ),
    Mutant(
        "unheard-stamp-ends-stage",
        "D10 B3",
        "node.proposals.clocks",
        "Clocks.now_ms",
        "self._time, self._at = heard + 1, now",
        "self._time, self._at = heard, now",
        "a leader's first stamp moves no catalog time, so that the next leader ends that stage by "
        "its own clock",
        "tests/verification/test_sim_clocks.py",
    ),
    Mutant(
        "step-ends-session",
        "D10 B3",
        "node.proposals.clocks",
        "Clocks._may_step_to",
        "wall if session_ends is None else min(wall, session_ends - SESSION_SPARE_MS)",
        "wall",
        "a wall clock that is ahead ends producers' sessions at once",
        "tests/verification/test_sim_clocks.py",
    ),
    Mutant(
        "retention-up-to-the-uncommitted",
        "D14 B34",
        "node.maintenance.retention",
        "Retention.retain",
        "raft.committed_index - 1,",
        "raft.committed_index,",
        "a log begins with an entry that is not committed, and a cut goes back into what is gone",
        "tests/node/test_node_maintenance.py",
    ),
    Mutant(
        "retention-believes-jump",
        "D10 B34",
        "node.proposals.clocks",
        "SteadyWall.now_ms",
        "now - self._since_ms >= DOUBT_MS",
        "True",
        "a jump of the wall clock expires all files at once",
        "tests/verification/test_sim_clocks.py",
    ),
    Mutant(
        "members-hold-for-ever",
        "B34",
        "node.maintenance.retention_holds",
        "Laggards.look",
        "Index(min(self._marks.values()) + 1), self._max_ms, self._max_bytes",
        "Index(min(self._marks.values()) + 1), 1 << 60, 0",
        "a member that is down keeps all others from letting anything go",
        "tests/verification/test_sim_retention.py",
    ),
    Mutant(
        "members-hold-nothing",
        "B34",
        "node.maintenance.retention",
        "Retention.retain",
        "self.laggards.look(marks)",
        "None",
        "retention waits for no member",
        "tests/verification/test_sim_retention.py",
    ),
    Mutant(
        "state-of-the-caught-up-only",
        "B34",
        "node.snapshot.sender",
        "SnapshotSender._begin",
        "elif begin > self._catalog.applied_index:",
        "elif max(begin, self._ready_loop.raft.noop_index) > self._catalog.applied_index:",
        "where a bare quorum is alive leader and member wait for each other",
        "tests/verification/test_sim_retention.py",
    ),
)
