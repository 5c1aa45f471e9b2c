"""One node with rules, and principals that send random frames, each in its turn.

What a principal got is judged apart from the node: each entry that came into the log in its turn,
and each request that was answered with success, needs rights by the table of operations, and a
plain look at all rules must find them.
"""

from __future__ import annotations

import logging
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from dledger.client import AclRule
from dledger.client.protocol.operations.access import parse_rule
from dledger.errors import ConfigError, DLedgerError, Unavailable
from dledger.node.access.operations import COMMANDS, EVERY, PAYLOADS, REQUESTS, SOME, Need
from dledger.node.node import NodeServer
from dledger.protocol.messages.catalog_commands import (
    AddAcls,
    CreateTopic,
    Expire,
    InitProducer,
    LeaveGroup,
    OpenStage,
    RemoveAcls,
)
from dledger.protocol.messages.client import AppendRequest, ExecuteRequest, StatusRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import MAGIC_NORMAL
from dledger.protocol.messages.hello import HelloRequest
from dledger.protocol.wire import FrameLimits, FrameReader, decode, decode_command, encode
from dledger.records.body.header import BODY_HEADER_SIZE, BODY_MAGIC, BodyKind, decode_header
from dledger.testing import InProcessGroup
from dledger.types import OWNER, Index
from verification.result import result
from verification.rights.frames import Requests
from verification.rights.principals import become

RULES: Final = (
    "allow User:admin admin cluster",
    "allow User:wrong all topic other*",
    "allow User:wrong all group other",
    "allow User:reader read topic t",
    "allow User:reader read group g",
    "allow User:writer write topic t",
    "allow User:writer write producer w*",
    "allow User:* describe topic new",
    "deny User:writer describe producer w1",
)
PRINCIPALS: Final = (
    *("User:ANONYMOUS", "User:wrong", "User:reader", "User:writer", "User:admin"),
    *("Node:n1", "Owner"),
)
TRUSTED: Final = ("Node:n1", "Owner")
IMPLY_DESCRIBE: Final = ("read", "write", "delete", "alter", "admin")
BATCH: Final = 50
"""Frames that are sent before their answers are read."""
DAMAGED: Final = 0.5
"""Share of the batches that have damaged bytes at their end."""
SENTINEL: Final = 1
"""The request behind each batch, whose answer says that all of it was seen."""
OF_THE_NODE: Final = (Expire, LeaveGroup)
"""Commands that a node writes by itself."""
Say = Callable[[str], None]


def allows(rules: Iterable[AclRule], principal: str, need: Need) -> bool:
    """Whether the rules give a principal what it needs, by a look at each of them."""
    operation, resource_type, name, _ = need
    allowing = {operation, "all", *(IMPLY_DESCRIBE if operation == "describe" else ())}
    has_names, allowed = resource_type != "cluster", False
    for rule in rules:
        if rule.principal not in (principal, "User:*") or rule.resource_type != resource_type:
            continue
        pattern = rule.resource
        fits = pattern == name or (pattern[-1:] == "*" and name.startswith(pattern[:-1]))
        if rule.effect == "deny":
            if (fits or (has_names and name == EVERY)) and rule.operation in (operation, "all"):
                return False
        elif (fits or (has_names and name == SOME)) and rule.operation in allowing:
            allowed = True
    return allowed


class Known:
    """All topics, sessions and stages that there ever were, by their numbers: a catalog for the
    rows of the table, in which nothing is gone."""

    def __init__(self) -> None:
        self.topics_state = SimpleNamespace(by_id={})
        self.applied_index = -1
        self.producers = SimpleNamespace(sessions={}, next_id=1)
        self.transactions = SimpleNamespace(stages={})

    def learn(self, catalog: Any) -> None:
        self.applied_index = catalog.applied_index
        self.producers.next_id = catalog.producers.next_id
        self.topics_state.by_id.update(catalog.topics_state.by_id)
        self.producers.sessions.update(catalog.producers.sessions)
        self.transactions.stages.update(catalog.transactions.stages)


@dataclass(slots=True)
class Turn:
    """One principal's."""

    principal: str
    server: NodeServer
    dice: random.Random
    known: Any
    """A `Known`, in the place of a catalog."""
    rules: list[AclRule]
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    asked: dict[int, Any] = field(default_factory=dict)
    next_id: int = SENTINEL + 1
    reader: FrameReader = field(default_factory=lambda: FrameReader(FrameLimits()))
    """Of the connection."""

    def run(self, frames: int) -> None:
        """Send so many frames, and judge what they did."""
        draws = Requests(self.dice, self.principal if self.principal != "User:admin" else "User:x")
        sent = 0
        while sent < frames and not self.problems:
            with closing(socket.create_connection(("127.0.0.1", self.server.port), 10)) as sock:
                self.greet(sock)
                while sent < frames:
                    first = self.server.catalog.applied_index + 1
                    self.known.learn(self.server.catalog)
                    sent += BATCH
                    goes_on = self._batch(sock, draws)
                    self._judge_entries(first)
                    if not goes_on or self.problems:
                        break
        self.counts["frames"] = sent

    def greet(self, sock: socket.socket) -> None:
        """Begin a connection, which is this principal's from here on."""
        self.reader = FrameReader(FrameLimits())
        sessions = self.server.parts.router.port_sessions.clients
        sock.sendall(b"".join(encode(HelloRequest(), SENTINEL)))
        if not self.answers(sock):
            raise Unavailable("the node did not answer a hello")
        become(self.server, next(reversed(sessions)), self.principal)

    def _batch(self, sock: socket.socket, draws: Requests) -> bool:
        """Whether the connection is still good."""
        frames = []
        for _ in range(BATCH):
            request, payload = draws.request()
            frames += encode(request, self.next_id, [payload] if payload else [])
            self.asked[self.next_id] = request
            self.next_id += 1
        if self.dice.random() < DAMAGED:
            frames.append(draws.damaged(self.next_id))
            self.next_id += 1
        frames += encode(StatusRequest(), SENTINEL)
        try:
            sock.sendall(b"".join(frames))
        except OSError:
            return False
        return self.answers(sock)

    def answers(self, sock: socket.socket) -> bool:
        """Read answers up to that of the sentinel; whether it came."""
        while True:
            try:
                data = sock.recv(1 << 16)
            except OSError:
                return False
            if not data:
                self.counts["connections closed"] += 1
                return False
            for frame in self.reader.feed(data):
                answer = decode(frame.kind, frame.header, frame.payload)
                if frame.request_id == SENTINEL:
                    return True
                self._judge_answer(self.asked.pop(frame.request_id, None), answer)

    # ---- what was done

    def _may(self, needs: Iterable[Need]) -> bool:
        return self.principal in TRUSTED or all(
            allows(self.rules, self.principal, need) for need in needs
        )

    def _judge_answer(self, request: Any, answer: Any) -> None:
        code = getattr(answer, "code", None)
        if code is Code.ACCESS_DENIED:
            self.counts["denied"] += 1
        elif code is Code.SUCCESS:
            self.counts["done"] += 1
        if request is None or type(request) in PAYLOADS or code is not Code.SUCCESS:
            return
        needs = list(REQUESTS[type(request)](request, self.known))
        if not self._may(needs):
            self.problems.append(f"{self.principal}: {request} was answered with {answer}")

    def _judge_entries(self, first: int) -> None:
        """Each entry of the log from ``first`` on is one that the principal may write."""
        self.known.learn(self.server.catalog)
        last = self.server.catalog.applied_index
        while first <= last:
            for entry in self.server.store.read(Index(first), 4 << 20, Index(last + 1)):
                first = entry.index + 1
                if entry.magic == MAGIC_NORMAL and entry.body[:2] == BODY_MAGIC:
                    self._judge_entry(memoryview(entry.body))

    def _judge_entry(self, body: memoryview) -> None:
        self.counts["entries"] += 1
        command: Any = AppendRequest()
        needs: Iterable[Need] = PAYLOADS[AppendRequest](body, self.known)
        if decode_header(body).kind is BodyKind.COMMAND:
            command = decode_command(body[BODY_HEADER_SIZE:])
            needs = COMMANDS[type(command)](command, self.known)
        if not isinstance(command, OF_THE_NODE) and not self._may(needs):
            self.problems.append(f"{self.principal} wrote {command}")
        if isinstance(command, AddAcls | RemoveAcls):
            self.rules[:] = self.server.catalog.acls.rules.values()


class Errors(logging.Handler):
    """Keeps what a node tells as an error: it should have none."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def run(folder: Path, frames: int, seed: int, say: Say) -> dict[str, Any]:
    """Let each principal send so many frames; the result as JSON values."""
    problems: list[str] = []
    total: Counter[str] = Counter()
    rows: list[list[Any]] = [["principal", "frames", "done", "denied", "entries written"]]
    errors = Errors()
    logging.getLogger("dledger.audit").setLevel(logging.CRITICAL)
    logging.getLogger().addHandler(errors)
    with InProcessGroup(1) as group:
        (server,) = group._servers.values()
        group._loop.set_exception_handler(lambda _, what: errors.texts.append(str(what)))
        known = Known()
        for number, principal in enumerate(PRINCIPALS):
            rules = prepare(server, known)
            turn = Turn(principal, server, random.Random(seed * 100 + number), known, rules)
            try:
                turn.run(frames)
            except DLedgerError as error:
                turn.problems.append(f"{principal}: {error}")
            problems += turn.problems[:3]
            total.update(turn.counts)
            counts = turn.counts
            cells = [counts[name] for name in ("frames", "done", "denied", "entries")]
            rows.append([principal, *cells])
            say(f"{principal}: {dict(counts)}, {turn.problems[:3] or 'nothing gained'}")
        if server.parts.ready_loop.failed:
            problems.append("the node has failed")
    logging.getLogger().removeHandler(errors)
    problems += errors.texts[:5]
    return result(
        "rights",
        command="make rights",
        ok=not problems,
        figures={"principals": len(PRINCIPALS), "frames": total["frames"]},
        faults={name: total[name] for name in ("denied", "done", "entries", "connections closed")},
        problems=problems,
        table=rows,
    )


def prepare(server: NodeServer, known: Known) -> list[AclRule]:
    """Let there be what requests name, and the rules of the beginning; these."""
    rules = [parse_rule(text) for text in RULES]
    last = tuple(server.catalog.acls.rules.values())
    commands: list[Any] = [
        *([RemoveAcls(rules=last, force=True)] if last else []),
        *(CreateTopic(name=one, log_id=f"{one}1", if_absent=True) for one in ("t", "other")),
        InitProducer(producer_name="p"),
        OpenStage(writer_id="w1", sequence=0, label="", timeout_ms=600_000),
        AddAcls(rules=tuple(rules)),
    ]
    owner = Turn(OWNER, server, random.Random(0), known, rules)
    with closing(socket.create_connection(("127.0.0.1", server.port), 10)) as sock:
        owner.greet(sock)
        for command in commands:
            sock.sendall(b"".join(encode(ExecuteRequest(command=command), SENTINEL)))
            owner.answers(sock)
    if not set(rules) <= set(server.catalog.acls.rules.values()):
        raise ConfigError("the rules of the beginning were not taken")
    return rules
