"""Bugs in the core, more of them: votes, answers of other times, windows, transfers, members."""

from __future__ import annotations

from typing import Final

from dledger.testing.mutants.plant import Mutant

CORE: Final = (
    Mutant(
        "raft-votes-twice", "B13", "raft.state.raft_state", "RaftState.set_vote",
        "assert term > self.term or self.voted_for is None, f\"second vote in term {term}: {voted_for}\"",
        "voted_for = self.voted_for or voted_for",
        "a second vote in a term is taken for a mistake of the caller, and answered with a yes",
    ),
    Mutant(
        "raft-stale-answer-counts", "D14 B18", "raft.member_state", "Machine._on_response",
        "elif response.term < self.term or not",
        "elif not",
        "an acknowledgement of an earlier term counts for entries of this one",
        "tests/raft/test_machine.py",
    ),
    Mutant(
        "raft-later-term-ignored", "B17", "raft.member_state", "Machine._on_response",
        "elif response.term > self.term:",
        "elif response.term > self.term + 1_000_000:",
        "a deposed leader does not hear that it was",
        "tests/raft/test_machine.py",
    ),
    Mutant(
        "raft-own-tail-matches", "D4 B19", "raft.roles.entry_handler", "Follower.__init__",
        "self.matched_index = core.log.committed_index",
        "self.matched_index = core.log.end_index",
        "a follower believes its own tail to be the new leader's",
    ),
    Mutant(
        "raft-push-without-check", "B18 B22", "raft.roles.entry_handler", "Follower.on_push",
        "elif not self.core.log.holds(request.previous):",
        "elif request.previous.index > self.core.log.end_index:",
        "entries are put behind others than the leader has there",
    ),
    Mutant(
        "raft-no-truncate", "B18", "raft.roles.entry_handler", "Follower._take",
        "self._cut(Index(first - 1), request.leader_id)",
        "return",
        "a tail that contradicts the leader is never cut",
    ),
    Mutant(
        "raft-cut-keeps-durable", "D1 B20", "raft.state.log", "RaftLog.truncate",
        "self.durable_index = min(self.durable_index, after)",
        "self.durable_index = max(self.durable_index, after)",
        "an entry put in the place of a cut one counts as durable before it is",
    ),
    Mutant(
        "raft-no-stickiness", "D11 B16", "raft.state.raft_state", "RaftState.leader_lives",
        "return now_ms - self.heard_leader_ms < self.config.election_ms",
        "return False",
        "voters that hear their leader help to depose it",
        "tests/raft/test_election.py",
    ),
    Mutant(
        "raft-window-never-freed", "B29", "raft.roles.entry_dispatcher", "EntryDispatcher._on_append_response",
        "self._in_flight_bytes -= self._in_flight.popleft().size",
        "self._in_flight.popleft()",
        "bytes in flight are never given back, so the window is full for ever",
    ),
    Mutant(
        "raft-transfer-never-ends", "B28", "raft.roles.leadership_transfer", "TransferWatch.look",
        "if is_replaced or now_ms >= transfer.deadline_ms:",
        "if is_replaced:",
        "a transfer to a dead node refuses appends for ever",
    ),
    Mutant(
        "raft-slow-disk-leads", "B31", "raft.roles.leader", "Leader._disk_stalls",
        "return self._lagging_since_ms is not None and",
        "return self._lagging_since_ms is not None and False and",
        "a leader whose disk stands still does not hand over",
        "tests/raft/test_raft_transfer.py tests/raft/test_deviations.py",
    ),
    Mutant(
        "raft-held-up-leads", "B8", "raft.roles.leader", "Leader._is_held_up",
        "if behind < core.quorum:",
        "if behind < 2 * core.quorum:",
        "a leader that can send nothing behind a damaged entry stays, and nothing is ever committed again",
        "tests/raft/test_faulty.py",
    ),
    Mutant(
        "raft-older-disk-believed", "B30", "raft.roles.leader", "Leader._check_kept",
        "if response.durable_index < had:",
        "if response.durable_index < -1:",
        "a node that came back with an older copy of its disk is counted for what it no longer has",
        "tests/raft/test_incarnations.py",
    ),
    Mutant(
        "raft-shortened-log-starts", "B30", "raft.state.log", "RaftLog.__init__",
        "if summary.committed > self.end_index:",
        "if summary.committed > self.end_index + (1 << 40):",
        "a node starts although entries are gone that it knew to be committed",
        "tests/raft/test_raft_log.py tests/raft/test_deviations.py tests/raft/test_machine.py",
    ),
    Mutant(
        "raft-damaged-push-taken", "D3", "raft.roles.entry_handler", "Follower._take",
        "if new and not self._sound(new):",
        "if new and not new[0].index >= 0:",
        "an entry that was damaged on its way is written and acknowledged",
        "tests/raft/test_follower.py tests/raft/test_deviations.py",
    ),
)
