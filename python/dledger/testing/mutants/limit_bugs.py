"""Bugs in what keeps strangers and liars from using up terms, memory and places."""

from __future__ import annotations

from typing import Final

from dledger.testing.mutants.plant import Mutant

LIMITS: Final = (
    Mutant(
        "term-jumps-anywhere", "D6", "raft.terms", "TermWatch.refuses",
        "min(own + TERM_JUMP, MAX_TERM)",
        "MAX_TERM",
        "one message spends the terms of a group",
        "tests/raft/test_terms.py",
    ),
    Mutant(
        "term-beyond-the-last", "D6", "raft.election", "Candidate.tick",
        " or self.core.term_is_spent",
        "",
        "a candidate asks for a term that has no room on the wire",
        "tests/raft/test_terms.py",
    ),
    Mutant(
        "state-of-a-term-to-come", "D6 D14", "raft.install", "install_mode",
        " or first.term > core.term",
        "",
        "a node fetches a state that begins with an entry which nobody can have written",
        "tests/raft/test_terms.py",
    ),
    Mutant(
        "reset-below-a-log", "B13", "store.reset_term", "_new_term",
        "last = max(node.log_term for node in nodes)",
        "last = min(node.log_term for node in nodes)",
        "two leaders write entries of one index and term",
        "tests/store/test_reset_term.py",
    ),
    Mutant(
        "reset-gives-a-vote-back", "B13", "store.reset_term", "_give",
        "HardState(term, me, was.commit_hint)",
        "HardState(term, None, was.commit_hint)",
        "a node may vote in the term that it was given, whatever it did there before",
        "tests/store/test_reset_term.py",
    ),
    Mutant(
        "unfinished-frames-are-free", "B35", "net.inflow", "Inflow._fits",
        "return used == 0 or used + size + self._others() <= self.limit",
        "return True",
        "frames that never end hold all of the memory",
        "tests/net/test_inflow.py tests/net/test_connection.py",
    ),
    Mutant(
        "a-byte-is-progress", "B35", "net.inflow", "Inflow.sweep",
        "came < LEAST_BYTES_PER_S * took_s",
        "not came",
        "a frame that trickles keeps its room for hours",
        "tests/net/test_inflow.py",
    ),
    Mutant(
        "members-wait-for-strangers", "B35", "net.connection", "Connection._admits",
        "self.is_member or ",
        "",
        "unfinished requests of clients hold up what members send",
        "tests/net/test_connection.py",
    ),
    Mutant(
        "ended-connections-keep-memory", "B35", "net.connection", "Connection.connection_lost",
        "self._reader.forget()",
        "self._reader.held",
        "buffers of connections that were closed pile up until they are collected",
        "tests/net/test_connection.py",
    ),
    Mutant(
        "a-flood-has-every-turn", "B35", "net.connection", "Connection._dispatch",
        "if taken == TURN_FRAMES or self._held_back:",
        "if self._held_back:",
        "all requests of one read are served before anybody else's",
        "tests/net/test_connection.py",
    ),
    Mutant(
        "megabytes-have-every-turn", "B35", "net.connection", "Connection.buffer_updated",
        "if self._turn_bytes >= TURN_BYTES:",
        "if self._turn_bytes < 0:",
        "megabytes that have come on one connection are served before anybody else's request",
        "tests/net/test_connection.py",
    ),
    Mutant(
        "partitions-have-every-turn", "B35", "server.apply", "Applier._apply",
        "if self._apply_one(entry):",
        "if self._apply_one(entry) and not entries:",
        "100,000 partitions are opened while everybody waits",
        "tests/server/test_server_turns.py",
    ),
    Mutant(
        "timed-for-ever", "D10", "server.appends", "Writes._release",
        "self._timed -= 1",
        "self._timed -= 0",
        "after the first stage or session catalog time never steps forward again",
        "tests/server/test_server_turns.py",
    ),
    Mutant(
        "poison-is-taken", "B35", "server.appends", "Writes.append",
        "if header.codec:",
        "if header.count < 0:",
        "a batch that no reader can decompress stops all of them",
        "tests/server/test_server_appends.py",
    ),
    Mutant(
        "places-first-come", "B35", "net.places", "Places.refusal",
        "and not self._make_room(here)",
        "and True",
        "idle connections shut out everybody of their address",
        "tests/net/test_places.py",
    ),
    Mutant(
        "members-have-no-place", "B35", "server.front", "Front._end_of_hello",
        "not peer and (full := places.refusal(connection))",
        "(full := places.refusal(connection))",
        "clients take the places of members",
        "tests/server/test_server_front.py",
    ),
    Mutant(
        "waiting-is-idle", "B35", "net.connection", "Connection.look_idle",
        " or self._asked > self._answered",
        "",
        "a long poll is closed as idle",
        "tests/net/test_connection.py",
    ),
    Mutant(
        "flood-slips-through", "B35", "server.quotas", "Quotas._over",
        "group, taken, claim = self._catalog, self._group, self._sum, self._claim(command)",
        "group, taken, claim = self._catalog, self._group, Claim(), self._claim(command)",
        "what is proposed and not applied counts for no limit",
        "tests/server/test_server_quotas.py",
    ),
    Mutant(
        "refused-is-written", "B35", "server.appends", "Writes._is_refused",
        "if refusal is not None:",
        "if refusal is not None and self.waiting < 0:",
        "a command that will be refused goes into the log, with all that it carries",
        "tests/server/test_server_quotas.py",
    ),
    Mutant(
        "refused-too-early", "B35", "server.quotas", "Quotas.refusal",
        "if not self.in_flight:",
        "if True:",
        "a command is refused although one before it makes it right",
        "tests/server/test_server_quotas.py",
    ),
    Mutant(
        "limits-when-applied", "B35", "catalog.topics", "Topics.create",
        "if taken is not None:",
        "if taken is not None or self.next_id > 10_000:",
        "an older log means something else than it did",
        "tests/catalog/test_catalog_topics.py",
    ),
)  # fmt: skip
