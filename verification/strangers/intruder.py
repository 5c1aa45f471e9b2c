"""The attacks of one stranger, in a process of its own: ``python -m verification.strangers.intruder
NAME ...``.

Each attack returns the effects that it achieved; the campaign checks which of them it should not
have.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dledger.client import Client
from dledger.config import Tls
from dledger.errors import DLedgerError
from dledger.protocol.messages.catalog_commands import (
    Command,
    CreateTopic,
    HoldRetention,
    InitProducer,
    OpenStage,
)
from dledger.protocol.messages.client import AppendRequest, ExecuteRequest, FetchRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloProof
from dledger.protocol.wire import encode
from dledger.types import NodeId
from verification.strangers.raw import Answers, dial, framed, hello, is_welcome, lies
from verification.strangers.users import run

BODY: Final = (12 << 20) - 1
"""Of an append that a node would take but for its last byte."""
AT_ONCE: Final = 500
"""Commands that are sent without waiting for an answer."""
LIES: Final = 100
"""Messages of one connection."""
PROOFS: Final = ("none", "empty", "drawn", "its own")
"""Proofs that a stranger without the secret can send: none, no bytes, random bytes, or the node's
own proof."""
UNPROVEN_OPEN: Final = 2000
"""Connections that are left open without a proof."""


def files(wanted: argparse.Namespace) -> dict[str, Any]:
    """Read files, or list folders; the number of those where it could."""
    read = 0
    for path in wanted.path:
        with contextlib.suppress(OSError):
            path.read_bytes() if path.is_file() else list(path.iterdir())
            read += 1
    return {"read": read}


def liar(wanted: argparse.Namespace) -> dict[str, Any]:
    """Say that it is a node, prove that as one can without the secret, and make up what a node
    says."""
    dice, counts = random.Random(wanted.seed), Counter[str]()
    members = tuple(sorted(wanted.nodes))
    ways = list(itertools.product(PROOFS, wanted.tls or [None]))
    reached, end = True, time.monotonic() + wanted.seconds
    while reached and (counts["messages"] < wanted.count or time.monotonic() < end):
        reached = False
        for (proof, files), (name, address) in itertools.product(ways, wanted.nodes.items()):
            me = NodeId(dice.choice([other for other in members if other != name]))
            lie = framed(lies(dice, wanted.group, me, NodeId(name), LIES))
            with contextlib.suppress(OSError), dial(address, files and Tls(*files)) as sock:
                reached = True
                counts["hellos"] += 1
                counts["messages"] += LIES
                counts[_claim(sock, hello(wanted.group, me, members), proof, lie)] += 1
    return dict(counts)


def _claim(sock: socket.socket, greeting: bytes, proof: str, lie: bytes) -> str:
    """The outcome of a claim to be a node."""
    answers = Answers(sock)
    sock.sendall(greeting + (lie if proof == "none" else b""))
    answer = answers.next()
    if answer is not None and answer.proof_wanted and proof != "none":
        made = {"empty": b"", "drawn": os.urandom(32), "its own": answer.proof}[proof]
        sock.sendall(b"".join(encode(HelloProof(proof=made), 2)))
        answer = answers.next()
    with contextlib.suppress(OSError):
        sock.sendall(lie)
    if is_welcome(answer):
        return "taken for a node"
    return "refused" if answer is not None and answer.code is Code.ACCESS_DENIED else "cut off"


def unproven(wanted: argparse.Namespace) -> dict[str, Any]:
    """Say again and again that it is a node, prove nothing, and leave as many connections open as
    it can."""
    dice, counts = random.Random(wanted.seed), Counter[str]()
    members = tuple(sorted(wanted.nodes))
    opened: deque[socket.socket] = deque()
    end = time.monotonic() + wanted.seconds
    while time.monotonic() < end and counts["hellos"] < wanted.count:
        for name, address in wanted.nodes.items():
            with contextlib.suppress(OSError):
                opened.append(sock := dial(address))
                me = dice.choice([other for other in members if other != name])
                sock.sendall(hello(wanted.group, me, members))
                counts["hellos"] += 1
                if counts["hellos"] % 10 == 0:
                    counts["taken for a node"] += is_welcome(Answers(sock).next())
            while len(opened) > UNPROVEN_OPEN:
                opened.popleft().close()
    time.sleep(max(0.0, end - time.monotonic()))
    return dict(counts)


def idle(wanted: argparse.Namespace) -> dict[str, Any]:
    """Open connections, say hello on half of them, and do nothing for a while."""
    opened = connections(wanted, lambda number: hello(wanted.group) if number % 2 else b"")
    time.sleep(wanted.seconds)
    return {"connections": len(opened)}


def connections(wanted: argparse.Namespace, words: Callable[[int], bytes]) -> list[socket.socket]:
    """``count`` connections to each node, as far as it takes them; the n-th of each begins with
    ``words(n)``."""
    opened: list[socket.socket] = []
    for number in range(wanted.count):
        for address in wanted.nodes.values():
            with contextlib.suppress(OSError):
                opened.append(sock := dial(address))
                sock.sendall(words(number))
    return opened


def welcomed(wanted: argparse.Namespace) -> list[socket.socket]:
    """`connections` that have said hello, and do not block."""
    opened = connections(wanted, lambda _: hello(wanted.group))
    for sock in opened:
        sock.setblocking(False)
    return opened


def slow(wanted: argparse.Namespace) -> dict[str, Any]:
    """Large appends that lack their last byte, and small ones that trickle."""
    frame = b"".join(encode(AppendRequest(), 2, [bytes(BODY)]))[:-1]
    left = {sock: memoryview(frame) for sock in welcomed(wanted)}
    end, sent, opened = time.monotonic() + wanted.seconds, 0, len(left)
    while time.monotonic() < end:
        for sock, rest in list(left.items()):
            try:
                size = sock.send(rest[: 256 << 10])
            except BlockingIOError:
                continue
            except OSError:
                del left[sock]
                continue
            sent += size
            if size == len(rest):
                del left[sock]
            else:
                left[sock] = rest[size:]
        time.sleep(0.02)
    return {"connections": opened, "bytes": sent, "still open": len(left)}


def deaf(wanted: argparse.Namespace) -> dict[str, Any]:
    """Ask for all of a topic again and again, and take no answer."""
    asked = FetchRequest(topic_id=wanted.topic_id, partition=0, start_offset=0, max_bytes=32 << 20)
    frames = framed(asked for _ in range(AT_ONCE))
    opened = connections(wanted, lambda _: hello(wanted.group))
    for sock in opened:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(frames)
    time.sleep(wanted.seconds)
    return {"connections": len(opened), "fetches": len(opened) * AT_ONCE}


def polls(wanted: argparse.Namespace) -> dict[str, Any]:
    """Ask for records that are not there yet, and for an unknown topic, again and again; answers
    are not looked at."""
    topics = (wanted.topic_id, wanted.topic_id + 1_000_000)
    asked = [
        FetchRequest(topic_id=topic, partition=0, start_offset=1 << 20, wait_ms=60_000)
        for topic in topics
    ]
    frames = framed(asked[number % 2] for number in range(AT_ONCE))
    sent = dict.fromkeys(welcomed(wanted), 0)
    end, counts, buffer = time.monotonic() + wanted.seconds, Counter[str](), bytearray(1 << 20)
    while time.monotonic() < end:
        for sock in sent:
            with contextlib.suppress(BlockingIOError, OSError):
                sent[sock] += sock.send(frames[sent[sock] % len(frames) :])
            with contextlib.suppress(BlockingIOError, OSError):
                counts["bytes of answers"] += sock.recv_into(buffer)
        time.sleep(0.02)
    size = len(frames) // AT_ONCE
    return {"connections": len(sent), "requests": sum(sent.values()) // size, **counts}


def command(number: int) -> Command:
    """One of a flood."""
    kinds: tuple[Command, ...] = (
        CreateTopic(name=f"flood-{number}", log_id=f"flood-{number}", partitions=10_000),
        InitProducer(producer_name=f"flood-{number}"),
        HoldRetention(consumer_group=f"flood-{number}", hold=True),
        OpenStage(writer_id="w" * 1000, sequence=number, label="l" * 1000, timeout_ms=600_000),
        HoldRetention(consumer_group="g" * 100_000, hold=True),
        CreateTopic(name=f"small-{number}", log_id=f"small-{number}"),
    )
    return kinds[number % len(kinds)]


def flood(wanted: argparse.Namespace) -> dict[str, Any]:
    """Commands, many at once; answers are taken, and not looked at. With another seed they are
    other ones."""
    counts = Counter[str]()
    reached, end = True, time.monotonic() + wanted.seconds
    while reached and (counts["commands"] < wanted.count or time.monotonic() < end):
        reached = False
        for address in wanted.nodes.values():
            with contextlib.suppress(OSError), dial(address) as sock:
                reached = True
                sock.settimeout(20)
                first = counts["commands"] + wanted.seed * 6_000_000
                asked = (ExecuteRequest(command=command(first + n)) for n in range(AT_ONCE))
                sock.sendall(hello(wanted.group) + framed(asked))
                counts["commands"] += AT_ONCE
                sock.shutdown(socket.SHUT_WR)
                while data := sock.recv(1 << 20):
                    counts["bytes of answers"] += len(data)
    return dict(counts)


def crowd(wanted: argparse.Namespace) -> dict[str, Any]:
    """Connections as in `idle`, and among them so many whose large append lacks its last byte."""
    opened = connections(wanted, lambda number: hello(wanted.group) if number % 2 else b"")
    found = slow(argparse.Namespace(**{**vars(wanted), "count": wanted.unfinished}))
    return {**found, "connections": found["connections"] + len(opened)}


OPERATIONS: Final[dict[str, Callable[[Client, str], Any]]] = {
    "status": lambda client, _: [one["role"] for one in client.status().values()],
    "list": lambda client, _: client.topics(),
    "describe": lambda client, topic: client.topic(topic),
    "read": lambda client, topic: list(client.read(topic, 0, 0, 1)),
    "append": lambda client, topic: client.append(topic, b"forged"),
    "create": lambda client, _: client.create_topic("theirs"),
    "group commit": lambda client, topic: client.commit_offsets("readers", {topic: {0: 1}}),
    "group delete": lambda client, _: client.delete_group("readers"),
    "transfer": lambda client, _: client.transfer("n0"),
    "admit": lambda client, _: client.admit("n0"),
    "delete": lambda client, topic: client.delete_topic(topic),
}
"""What a client can ask of a group and of a topic; the last one ends it."""


def path(wanted: argparse.Namespace) -> dict[str, Any]:
    """Each operation at another user's path group, by the addresses that any user can find out: how
    often it was carried out."""
    counts: dict[str, Any] = dict.fromkeys(("welcome", *OPERATIONS), 0)
    for address in wanted.nodes.values():
        with contextlib.suppress(OSError), dial(address) as sock:
            sock.sendall(hello(""))
            counts["welcome"] += is_welcome(Answers(sock).next())
    for name, operation in OPERATIONS.items():
        with (
            contextlib.suppress(DLedgerError, KeyError),  # a node that says no has no role
            Client(",".join(wanted.nodes.values()), request_timeout_ms=3000) as client,
        ):
            operation(client, wanted.topic)
            counts[name] += 1
    return counts


ATTACKS: Final[dict[str, Callable[[argparse.Namespace], dict[str, Any]]]] = {
    "files": files, "liar": liar, "unproven": unproven, "idle": idle, "slow": slow, "flood": flood,
    "path": path, "deaf": deaf, "polls": polls, "crowd": crowd,
}  # fmt: skip


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attack", choices=sorted(ATTACKS))
    parser.add_argument("--nodes", type=json.loads, default={}, help="JSON: node -> host:port")
    parser.add_argument("--group", default="")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--topic-id", type=int, default=0)
    parser.add_argument(
        "--tls",
        type=json.loads,
        default=[],
        help="JSON: lists of an authority, a certificate, its key",
    )
    parser.add_argument("--topic", default="")
    parser.add_argument("--unfinished", type=int, default=1)
    parser.add_argument("--path", type=Path, action="append", default=[])
    return parser.parse_args(argv)


def serve() -> int:
    """Run one attack after the other, each in a process of its own: as
    `verification.strangers.users.OtherUser` asks for them."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(json.loads(line))) + "\n")
        sys.stdout.flush()
    return 0


def main(argv: list[str]) -> int:
    """Run one attack, and print what it achieved as JSON."""
    if argv == ["serve"]:
        return serve()
    wanted = arguments(argv)
    found = {"uid": os.getuid(), **ATTACKS[wanted.attack](wanted)}
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
