"""Stores with each kind of file missing, cut, changed or with a hole, under each tool.

Whatever happens to a file: no tool reports success with fewer messages, or others, than the whole
store has, unless it says so, and none ends but with an error of its own. For a search alone, a
first file of the log that is missing is what retention leaves.
"""

from __future__ import annotations

import itertools
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from dledger.errors import DLedgerError
from dledger.rocketmq.dispatch.build_consume_queue import Reput
from dledger.rocketmq.format.checkpoint import StoreCheckpoint
from dledger.rocketmq.format.message import Message
from dledger.rocketmq.format.scan import scan
from dledger.rocketmq.format.scanned_piece import PieceKind
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.index_service import IndexService
from dledger.rocketmq.store.message_store import MessageStore
from dledger.rocketmq.store.store_lock import CheckpointFile
from tests.cli.commands import attempt

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "rocketmq"
SLOTS = 100
SMALL = {"units_in_file": 1000, "index_slots": SLOTS, "index_units": 400}
FILE = {"golden": 65_536, "several files": 2048}
COUNT = 36
KEYS = ("k3", "k17", f"k{COUNT - 1}")
Damage = tuple[str, Callable[[bytes], bytes | None]]


def golden_store(root: Path) -> None:
    """The commit log of a 4.9.8 broker, with queues and index as that broker makes them."""
    data = (GOLDEN / "old_commitlog.bin").read_bytes()
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / ("0" * 20)).write_bytes(data[:1206].ljust(FILE["golden"], b"\0"))
    (root / "abort").touch()
    MessageStore(root, file_size=FILE["golden"], **SMALL).close()  # type: ignore[arg-type]


def golden_ledger(root: Path) -> None:
    """The store of a 4.9.8 broker in DLedger mode."""
    folder = root / "dledger-n0" / "data"
    folder.mkdir(parents=True)
    data = (GOLDEN / "dledger_data.bin").read_bytes().ljust(FILE["golden"], b"\0")
    (folder / ("0" * 20)).write_bytes(data)
    queues = ConsumeQueues(root / "consumequeue", 1000)
    index = IndexService(root / "index", SLOTS, units=400)
    reput = Reput(queues, index, offset=0)
    reput.dispatch(data, 0, len(data))
    queues.flush()
    index.flush()
    CheckpointFile(root).write(StoreCheckpoint(*[reput.store_timestamp] * 3))


def several_files(root: Path) -> None:
    clock = iter(range(1_790_000_000_000, 1_800_000_000_000, 1000))
    with MessageStore(
        root,
        file_size=FILE["several files"],
        units_in_file=20,
        index_slots=SLOTS,
        index_units=31,
        clock=lambda: next(clock),
    ) as store:
        for n in range(COUNT):
            store.put_message(
                Message("orders", f"{n}".encode() * 9, f"KEYS\x01k{n}\x02TAGS\x01t", queue_id=n % 2)
            )


STORES = {"golden": golden_store, "golden ledger": golden_ledger, "several files": several_files}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {name: tmp_path_factory.mktemp("whole") / "store" for name in STORES}
    for name, root in found.items():
        STORES[name](root)
    return found


def cut(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at]


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes((data[at] ^ 0x41,)) + data[at + 1 :]


def hole(begin: int, end: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:begin] + bytes(min(end, len(data)) - begin) + data[end:]


def damages(path: Path) -> Iterator[Damage]:
    """Each kind of thing that can happen to a file, and where."""
    data = path.read_bytes()
    yield "missing", lambda _: None
    yield "empty", cut(0)
    if path.parent.name in ("commitlog", "data"):
        kinds = (PieceKind.MESSAGE, PieceKind.ENTRY)
        found = [piece for piece in scan(data, int(path.name)) if piece.kind in kinds]
        start, middle, last = int(path.name), found[len(found) // 2], found[-1]
        places = {
            "header": 20,
            "body": 89 + middle.message_offset - middle.start,
            "properties": 1 << 20,
        }
        for one, name in ((middle, "a middle message"), (last, "the last message")):
            begin = one.start - start
            yield f"cut before {name}", cut(begin)
            yield f"zeros from {name} on", hole(begin, len(data))
            for part, at in places.items():
                at = min(at, one.end - one.start - 3)
                yield f"cut in the {part} of {name}", cut(begin + at)
                yield f"zeros from the {part} of {name} on", hole(begin + at, len(data))
            for part, at in {"size": 3, "magic": 5, "crc": 9, "place": 34, "body": 89}.items():
                yield f"{part} changed in {name}", flip(one.message_offset - start + at)
        yield "a hole", hole(middle.start - start, middle.end - start)
        body_at = middle.message_offset - start + 88
        yield "a hole in a body", hole(body_at, body_at + 2)
        return
    used = len(data.rstrip(b"\0"))
    places = sorted(
        {3, 11, 20, 27, used // 2, used - 1, 40 + 4 * SLOTS + 20 * 3 + 11} & set(range(len(data)))
    )
    for at in places:
        yield f"cut at {at}", cut(at)
        yield f"changed at {at}", flip(at)
        yield f"zeros from {at} on", hole(at, len(data))
    yield "zeros", hole(0, len(data))


def files(root: Path) -> list[Path]:
    return sorted(
        path.relative_to(root) for path in root.rglob("*") if path.is_file() and path.name != "lock"
    )


def run(words: str) -> Result:
    done = attempt(words)
    assert done.exception is None or isinstance(done.exception, DLedgerError | SystemExit), (
        done.exc_info
    )
    return done


def verify(root: Path) -> object:
    done = run(f"rocketmq verify '{root}' --index-slots {SLOTS}")
    if done.exit_code:
        return None
    report = json.loads(done.stdout)
    return None if report["notes"] else report["messages"]


def search(root: Path, words: str = "--from 0 -n 1000") -> object:
    done = run(f"rocketmq search '{root}' {words}")
    return None if done.exit_code or done.stderr else done.stdout


def search_by_key(root: Path) -> object:
    found = [search(root, f"--topic orders --key {key} --index-slots {SLOTS}") for key in KEYS]
    return None if None in found else found


def adopt(root: Path) -> object:
    done = run(f"rocketmq adopt '{root}' --self-id n0 --dry-run")
    said = ("covers what stands there", "\nthe log begins")
    if done.exit_code or done.exception or any(text in done.stdout for text in said):
        return None
    head = done.stdout.splitlines()[0]
    return head[head.index(": ") :]  # messages, files, where they end, queues


class Warned(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def start_of_follow(root: Path) -> object:
    """What the store has when it is open; None where it is refused, or where something was said."""
    warned, logger = Warned(), logging.getLogger("dledger")
    logger.addHandler(warned)
    options = {**SMALL, "file_size": FILE["golden"]}
    if root.name == "several files":
        options |= {"file_size": FILE["several files"], "units_in_file": 20, "index_units": 31}
    try:
        with MessageStore(root, **options) as store:  # type: ignore[arg-type]
            log = store.log.read(store.log.min_offset, store.log.max_offset - store.log.min_offset)
            queues = {
                key: [
                    one.body
                    for at in range(queue.min_offset, queue.max_offset, 32)
                    for one in store.messages(*key, at, 32)
                ]
                for key, queue in store.queues.items()
            }
        return None if warned.messages else (log, queues)
    except DLedgerError:
        return None
    finally:
        logger.removeHandler(warned)


TOOLS = {
    "verify": verify,
    "search": search,
    "search by key": search_by_key,
    "adopt": adopt,
    "start of follow": start_of_follow,
}
PASSED = {
    ("several files", "search"): ("consumequeue", "index", "dispatched"),
    ("several files", "search by key"): ("consumequeue", "dispatched"),
}
"""What these tools do not read, or not for what they find."""
CASES = [
    (store, tool)
    for store, tool in itertools.product(STORES, TOOLS)
    if not (store == "golden ledger" and tool in ("adopt", "start of follow"))
    and not (store != "several files" and tool == "search by key")
]


@pytest.mark.parametrize(("store", "tool"), CASES)
def test_no_tool_is_content_with_less_than_the_whole_store_has(
    stores: dict[str, Path], tmp_path: Path, store: str, tool: str
) -> None:
    whole, copy = stores[store], tmp_path / store
    look = TOOLS[tool]
    shutil.copytree(whole, copy)
    expected = look(copy)
    assert expected is not None
    silent, said = [], 0
    for name in files(whole):
        if name.parts[0] in PASSED.get((store, tool), ()):
            continue
        for what, damage in damages(whole / name):
            shutil.rmtree(copy)
            shutil.copytree(whole, copy)
            damaged = damage((whole / name).read_bytes())
            (copy / name).unlink() if damaged is None else (copy / name).write_bytes(damaged)
            found = look(copy)
            said += found is None
            is_first = name.parts[0] == "commitlog" and name.name == "0" * 20 and what == "missing"
            if found is not None and found != expected and not (is_first and "search" in tool):
                silent.append(f"{name}: {what}")
    assert not silent
    assert said
