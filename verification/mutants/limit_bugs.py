"""Bugs of the limits on terms, long polls, partitions and commands under way."""

from __future__ import annotations

from typing import Final

from verification.mutants.plant import Mutant

LIMITS: Final = (
    Mutant(
        "term-jumps-anywhere",
        "D6",
        "raft.state.terms",
        "TermWatch.refuses",
        "min(own + TERM_JUMP, MAX_TERM)",
        "MAX_TERM",
        "one message spends the terms of a group",
        "tests/raft/test_terms.py",
    ),
    Mutant(
        "term-beyond-the-last",
        "D6",
        "raft.roles.leader_elector",
        "Candidate.tick",
        " or self.core.term_is_spent",
        "",
        "a candidate asks for a term that has no room on the wire",
        "tests/raft/test_terms.py",
    ),
    Mutant(
        "state-of-a-term-to-come",
        "D6 D14",
        "raft.roles.snapshot_install",
        "install_mode",
        " or first.term > core.term",
        "",
        "a node fetches a state that begins with an entry which nobody can have written",
        "tests/raft/test_terms.py",
    ),
    Mutant(
        "reset-below-a-log",
        "B13",
        "storage.offline.reset_term",
        "_new_term",
        "last = max(node.log_term for node in nodes)",
        "last = min(node.log_term for node in nodes)",
        "two leaders write entries of one index and term",
        "tests/storage/test_reset_term.py",
    ),
    Mutant(
        "reset-gives-a-vote-back",
        "B13",
        "storage.offline.reset_term",
        "_give",
        "HardState(term, me, was.commit_hint)",
        "HardState(term, None, was.commit_hint)",
        "a node may vote in the term that it was given, whatever it did there before",
        "tests/storage/test_reset_term.py",
    ),
    Mutant(
        "long-polls-have-no-bound",
        "B35",
        "node.handlers.parked_requests",
        "LongPolls.hold",
        "while self._cost > MOST_COST:",
        "while self._cost < 0:",
        "a client fills a node with requests that wait",
        "tests/node/test_node_long_polls.py",
    ),
    Mutant(
        "answers-instead-of-room",
        "B35",
        "node.handlers.parked_requests",
        "LongPolls._make_room",
        "            self._free(oldest)\n            oldest.give_up()\n",
        "            self._cost -= oldest.cost\n"
        "            self._due.setdefault(connection, deque()).append((oldest, oldest.give_up))\n",
        "requests that lost their room wait for their answers, as many as a client sends, and "
        "fill a node",
        "tests/node/test_node_long_polls.py",
    ),
    Mutant(
        "long-polls-in-one-turn",
        "B35",
        "node.handlers.parked_requests",
        "LongPolls._answer",
        "for _ in range(TURN_ANSWERS):",
        "while self._due:",
        "an append that thousands wait for keeps everybody waiting until all of them are answered",
        "tests/node/test_node_long_polls.py",
    ),
    Mutant(
        "long-polls-by-request",
        "B35",
        "node.handlers.parked_requests",
        "LongPolls._next_due",
        "            self._due[connection] = answers\n",
        "            self._due = {connection: answers, **self._due}\n",
        "a connection that waits for much is answered before all others",
        "tests/node/test_node_long_polls.py",
    ),
    Mutant(
        "long-polls-miss-a-deletion",
        "B35",
        "catalog.topics.partitions",
        "Partitions.drop",
        "        self.gone.add(info.topic_id)\n",
        "        self.gone.discard(info.topic_id)\n",
        "a consumer learns that its topic was deleted when its time is over",
        "tests/node/test_node_reads.py",
    ),
    Mutant(
        "long-polls-miss-a-commit",
        "B35",
        "catalog.clients.transactions",
        "Transactions._place",
        "            self._grown.add(key)\n",
        "            key.bit_length()\n",
        "a consumer learns of what a transaction wrote when its time is over",
        "tests/node/test_node_reads.py",
    ),
    Mutant(
        "partitions-have-every-turn",
        "B35",
        "catalog.topics.partitions",
        "Partitions.__getitem__",
        "            found = self.used[key] = self.look(key)",
        "            self.used.update((one, self.look(one)) for one in self if one not in "
        "self.used)\n"
        "            found = self.used[key]",
        "100,000 partitions are opened while everybody waits",
        "tests/catalog/test_catalog_partitions.py",
    ),
    Mutant(
        "looking-opens-partitions",
        "B35",
        "catalog.topics.partitions",
        "Partitions.look",
        "return Partition(\n"
        "            self._tables,\n"
        "            info.name,\n"
        "            topic_id=info.topic_id,\n"
        "            number=number,\n"
        "            newest_schema=self._newest_schema(info.topic_id),\n"
        "        )",
        "new = Partition(\n"
        "            self._tables,\n"
        "            info.name,\n"
        "            topic_id=info.topic_id,\n"
        "            number=number,\n"
        "            newest_schema=self._newest_schema(info.topic_id),\n"
        "        )\n"
        "        return self.used.setdefault(key, new)",
        "whoever asks for the offsets of a topic of 10,000 partitions opens all of them",
        "tests/catalog/test_catalog_partitions.py",
    ),
    Mutant(
        "timed-for-ever",
        "D10",
        "node.proposals.proposal_queue",
        "ProposalQueue._count",
        "self._timed += by * isinstance(command, TIMED)",
        "self._timed += max(by, 0) * isinstance(command, TIMED)",
        "after the first stage or session catalog time never steps forward again",
        "tests/node/test_node_turns.py",
    ),
    Mutant(
        "timed-while-waited-for",
        "D10",
        "node.proposals.proposal_queue",
        "ProposalQueue._nothing_timed_waits",
        "is_applied = self._catalog.applied_index >= self._last_timed",
        "is_applied = True",
        "catalog time steps forward over a stage that nobody waits for any more: it ends too soon",
        "tests/node/test_node_turns.py",
    ),
    Mutant(
        "poison-is-taken",
        "B35",
        "node.proposals.proposal",
        "check_append",
        "if header.codec:",
        "if header.count < 0:",
        "a batch that no reader can decompress stops all of them",
        "tests/node/test_node_appends.py",
    ),
    Mutant(
        "members-have-no-place",
        "B35",
        "node.handlers.request_router",
        "RequestRouter._end_of_hello",
        "not peer and (full := places.refusal(connection))",
        "(full := places.refusal(connection))",
        "clients take the places of members",
        "tests/node/test_node_request_router.py",
    ),
    Mutant(
        "flood-slips-through",
        "B35",
        "node.proposals.quotas",
        "Quotas._over",
        "group, taken, claim = self._catalog, self._group, self._sum, self._claim(command)",
        "group, taken, claim = self._catalog, self._group, Claim(), self._claim(command)",
        "what is proposed and not applied counts for no limit",
        "tests/node/test_node_quotas.py",
    ),
    Mutant(
        "refused-is-written",
        "B35",
        "node.proposals.proposal_queue",
        "ProposalQueue._is_refused",
        "if refusal is not None:",
        "if refusal is not None and self.waiting < 0:",
        "a command that will be refused goes into the log, with all that it carries",
        "tests/node/test_node_quotas.py",
    ),
    Mutant(
        "refused-too-early",
        "B35",
        "node.proposals.quotas",
        "Quotas.refusal",
        "if not self.in_flight:",
        "if True:",
        "a command is refused although one before it makes it right",
        "tests/node/test_node_quotas.py",
    ),
    Mutant(
        "limits-when-applied",
        "B35",
        "catalog.topics.topics",
        "Topics.create",
        "if taken is not None:",
        "if taken is not None or self.next_id > 10_000:",
        "an older log means something else than it did",
        "tests/catalog/test_catalog_topics.py",
    ),
    Mutant(
        "nobody-is-company",
        "B35",
        "node.handlers.request_router",
        "RequestRouter._on_frame",
        "                self._company.note(connection, connection.now_s())\n            handle(",
        "                pass\n            handle(",
        "a flood of commands has no pace while others append",
        "tests/node/test_node_turns.py",
    ),
    Mutant(
        "commands-under-way-without-end",
        "B35",
        "node.proposals.proposal_queue",
        "ProposalQueue._count",
        "self.commands += by * (proposal.connection is not None)",
        "self.commands += 0",
        "as many commands are under way as clients care to send",
        "tests/node/test_node_turns.py",
    ),
    Mutant(
        "resumed-before-its-turn",
        "B35",
        "node.handlers.request_router",
        "RequestRouter._resume",
        "waits = (\n"
        "            connection in self._commands\n"
        "            or connection in self._hellos\n"
        "            or connection in connection.outflow\n"
        "        )",
        "waits = connection in self._hellos or connection in connection.outflow",
        "requests of one connection overtake its command, and a flood is read on",
        "tests/node/test_node_turns.py",
    ),
    Mutant(
        "proofs-for-everybody",
        "B35",
        "node.handlers.request_router",
        "RequestRouter._hello",
        "if self._gate.wants_proof(message):",
        "if False:",
        "a node spends its turns on proofs for whoever claims to be a member",
        "tests/node/test_node_turns.py",
    ),
)
