"""Adopting an old commit log: what is changed, and that it may be interrupted at any point."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dledger.errors import DLedgerError, PathError
from dledger.node.rocketmq.adoption import AdoptionPlan, adopt, plan_adoption
from dledger.node.rocketmq.dispatched import ROOT, Dispatched
from dledger.protocol.messages.catalog_commands import AdoptCommitLog
from dledger.protocol.wire import decode_command
from dledger.rocketmq.format.index_file import DEFAULT_SLOTS
from dledger.rocketmq.format.message import Message
from dledger.rocketmq.store.index_service import now_ms
from dledger.rocketmq.store.message_store import MessageStore
from dledger.rocketmq.upgrade.adoption import copy_store
from dledger.rocketmq.upgrade.examine import examine
from dledger.rocketmq.upgrade.old_commit_log import Adopted
from dledger.storage.disk.disk import RealDisk
from dledger.storage.offline.verify import verify_store
from dledger.storage.opening import open_settings
from dledger.storage.recovery.open_files import StoreSettings
from dledger.types import NodeId
from tests.node.old_stores import SIZE, files_of, make_old_store

INDEX = 3_200
KILLED = 77
OPERATIONS = (
    "pwrite", "pwritev", "write", "ftruncate", "truncate", "posix_fallocate", "fsync", "fdatasync",
    "rename", "replace", "unlink", "remove", "mkdir", "rmdir",
)  # fmt: skip
"""What is opened is seen with the operation that follows."""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_old_store(tmp_path_factory.mktemp("old") / "store")


@pytest.fixture
def root(old: Path, tmp_path: Path) -> Path:
    copy_store(old, tmp_path / "store")
    return tmp_path / "store"


def plan_of(root: Path, group: str = "test", name: str = "n0") -> AdoptionPlan:
    return plan_adoption(examine(root), group, NodeId(name), INDEX)


def assert_adopted(root: Path, old: Path) -> dict[str, bytes]:
    """The node is whole, and the store is the old one but for a blank; the node's files but for
    what is drawn."""
    report = verify_store(root / "dledger-n0")
    assert report["ok"], report
    assert (report["begin_index"], report["end_index"], report["commit_hint"]) == (0, 0, 0)
    before, after = files_of(old), files_of(root)
    found = examine(root)
    assert found.has_blank
    last = f"commitlog/{found.starts[-1]:020d}"
    node = {name: data for name, data in after.items() if name.startswith("dledger-n0/")}
    rest = {name: data for name, data in after.items() if name not in node}
    at = found.end - found.starts[-1]
    assert before[last][:at] == rest[last][:at]
    assert rest.pop(last)[at + 8 :] == before.pop(last)[at + 8 :]
    before.pop("lock"), rest.pop("lock", None)
    # of whoever opened the store last, here without its index
    before.pop("dispatched"), rest.pop("dispatched", None)
    assert rest == before
    assert Adopted.load(root / "dledger-n0") == Adopted(
        found.divided_offset, SIZE, found.fingerprint
    )
    stamped = ("/state", "/mark", "/members", "/rocketmq/index/")
    return {name: data for name, data in node.items() if not any(part in name for part in stamped)}


def test_a_plan_changes_nothing_and_says_what_an_adoption_changes(root: Path, old: Path) -> None:
    before = files_of(root)
    plan = plan_of(root)
    steps = "\n".join(plan.steps())
    assert files_of(root) == before
    assert f"close {plan.adoption.last_file} by a blank" in steps
    assert f"make {root / 'dledger-n0'}: node n0 of group test" in steps
    adopt(plan)
    assert_adopted(root, old)
    assert plan_of(root).is_done
    assert "close" not in "\n".join(plan_of(root).steps())


def test_first_entry_lies_at_old_log_end_and_is_equal_on_all_members(
    old: Path, tmp_path: Path
) -> None:
    bodies = []
    for name in ("n0", "n1"):
        copy_store(old, tmp_path / name)
        plan = plan_of(tmp_path / name, name=name)
        adopt(plan)
        (file,) = (tmp_path / name / f"dledger-{name}" / "data").iterdir()
        assert int(file.name) == plan.adoption.divided_offset
        bodies.append(file.read_bytes())
        command = decode_command(
            plan.first_body[-(len(plan.first_body) - plan.first_body.index(b"\x95", 30)) :]
        )
        assert isinstance(command, AdoptCommitLog)
        assert command.queues == {"orders": {0: 150, 1: 150}}
    assert bodies[0] == bodies[1]


def test_old_logs_that_differ_in_one_body_make_different_first_entries(tmp_path: Path) -> None:
    bodies = []
    for text in (b"one", b"two"):
        root = tmp_path / text.decode()
        with MessageStore(
            root, file_size=SIZE, index=False, clock=lambda: 1_790_000_000_000
        ) as store:
            store.put_messages([Message("orders", b"same"), Message("orders", text)])
        bodies.append(plan_of(root).first_body)
    assert bodies[0] != bodies[1]
    assert len(bodies[0]) == len(bodies[1])


def test_store_of_other_group_node_or_ledger_mode_is_not_adopted_again(
    root: Path, tmp_path: Path
) -> None:
    adopt(plan_of(root))
    for group, name in (("other", "n0"), ("test", "n1")):
        with pytest.raises(PathError, match="is not adopted again"):
            plan_of(root, group, name)
    shutil.rmtree(root / "dledger-n0")
    (root / "dledger-n0" / "data").mkdir(parents=True)
    with pytest.raises(PathError, match="of a broker in DLedger mode"):
        plan_of(root)


def test_queues_that_do_not_fit_an_entry_are_refused(root: Path) -> None:
    found = examine(root)
    found.queues = {f"topic{n}": dict.fromkeys(range(100), 1 << 40) for n in range(100)}
    with pytest.raises(PathError, match="10,000 queues"):
        plan_adoption(found, "test", NodeId("n0"), INDEX)


def dying_at(number: int, work: Callable[[], None]) -> bool:
    """Do the work in a process that is killed in front of its ``number``-th operation on files;
    whether it was."""
    child = os.fork()
    if child == 0:
        left = number

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    os._exit(KILLED)
                return function(*args, **kwargs)

            return call

        try:
            for name in OPERATIONS:
                setattr(os, name, counted(getattr(os, name)))
            work()
        except BaseException as error:
            sys.stderr.write(repr(error))
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, KILLED)
    return code == KILLED


def test_adoption_killed_at_any_operation_is_completed_by_the_next_one(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fsync", "fdatasync"):  # what a process has written is there when it is killed
        monkeypatch.setattr(os, name, lambda handle: None)
    copy_store(old, tmp_path / "whole")
    adopt(plan_of(tmp_path / "whole"))
    whole = assert_adopted(tmp_path / "whole", old)
    number, killed = 0, True
    while killed:
        root = tmp_path / f"at{number}"
        copy_store(old, root)
        plan = plan_of(root)
        killed = dying_at(number, lambda plan=plan: adopt(plan))
        if killed:
            # a broker could go on with it as before, or the node is there as a whole
            found = examine(root)
            assert (found.messages, found.tail) == (300, "")
            if (root / "dledger-n0").exists():
                assert_adopted(root, old)
            if number % 8 == 0 and not (root / "dledger-n0").exists():
                MessageStore(root, file_size=SIZE, index=False).close()
            adopt(plan_of(root))
        assert assert_adopted(root, old) == whole
        shutil.rmtree(root)
        number += 1
    assert number > 60


def test_member_copy_without_oldest_files_is_adopted_alike(root: Path, tmp_path: Path) -> None:
    plan = plan_of(root)
    adopt(plan)
    (root / "commitlog" / ("0" * 20)).unlink()
    for name in ("commitlog", "consumequeue"):
        shutil.copytree(root / name, tmp_path / "other" / name)
    other = plan_of(tmp_path / "other", name="n1")
    assert other.adoption.starts == plan.adoption.starts[1:]
    assert other.first_body == plan.first_body


def test_everything_is_on_the_disk_before_the_directory_has_its_name(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsynced: dict[Path, str] = {}
    left: list[dict[Path, str]] = []

    def path_of(handle: int) -> Path:
        return Path(f"/proc/self/fd/{handle}").readlink()

    def watch(name: str, note: Callable[..., None], *, before: bool = False) -> None:
        real = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if before:
                note(name, *args)
            result = real(*args, **kwargs)
            if not before:
                note(name, *args)
            return result

        monkeypatch.setattr(os, name, call)

    def written(name: str, handle: int, *_: Any) -> None:
        unsynced[path_of(handle)] = name

    def synced(name: str, handle: int) -> None:
        unsynced.pop(path_of(handle), None)

    def named(name: str, source: Any, target: Any) -> None:
        if Path(target).name == "dledger-n0":
            left.append(
                {path: why for path, why in unsynced.items() if path.exists() and path != root}
            )
        if unsynced.pop(Path(source), None):
            unsynced[Path(target)] = "written under another name"
        unsynced[Path(target).parent] = name

    def made(name: str, path: Any, *_: Any) -> None:
        unsynced[Path(path).parent] = name

    for name in ("pwrite", "pwritev", "ftruncate", "posix_fallocate"):
        watch(name, written)
    for name in ("fsync", "fdatasync"):
        watch(name, synced)
    for name in ("rename", "replace"):
        watch(name, named, before=True)
    watch("mkdir", made)
    adopt(plan_of(root))
    assert left == [{}]
    assert {path for path in unsynced if root in path.parents or path == root} <= {root / "lock"}


def test_adoption_without_room_leaves_store_unchanged_and_can_be_redone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, plan = files_of(root), plan_of(root)

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(DLedgerError):
            adopt(plan)
    assert files_of(root) == before
    assert not list(root.glob("*n0*"))
    adopt(plan)
    assert plan_of(root).is_done


def test_index_with_a_rebuilt_part_is_whole_only_after_the_rebuild(root: Path) -> None:
    adopt(plan_of(root))
    node = root / "dledger-n0"
    abort = node / ROOT / "abort"
    abort.touch()
    (path,) = (node / ROOT / "index").iterdir()
    with path.open("r+b") as file:  # a power failure has torn the last units
        file.seek(40 + 4 * DEFAULT_SLOTS + 20 * 200)
        file.write(bytes(20 * 101))
    settings = StoreSettings(
        directory=node,
        node_id=NodeId("n0"),
        group="test",
        segment_bytes=SIZE,
        index_file_bytes=INDEX,
    )
    store = open_settings(settings, RealDisk())
    for steps in (0, 1):
        files = Dispatched(node, now_ms)
        files.open(store)
        for _ in range(steps):
            files.put_old(SIZE // 8)
        assert files.is_behind
        files.close(store.durable.index, clean=True)
        assert abort.exists() is (steps == 0), (
            "what was cut off is missing, and nothing may say that all is whole"
        )
    files = Dispatched(node, now_ms)
    files.open(store)
    while files.is_behind:
        files.put_old(SIZE)
    assert [len(files.index.lookup("orders", f"u{n}")) for n in range(300)] == [1] * 300
    assert sum(queue.max_offset for _, queue in files.queues.items()) == 300
    files.close(store.durable.index, clean=True)
    assert not abort.exists()
    store.close()
