"""A start after a crash: everything that has to hold then."""

from __future__ import annotations

from dataclasses import replace

from dledger.errors import DLedgerError
from dledger.node.checkpoints import Checkpoints
from dledger.protocol.messages.entry import Entry, HardState
from dledger.protocol.messages.entry_runs import stamp_all
from dledger.storage.background import BackgroundState
from dledger.storage.file_store import FileStore
from dledger.storage.offline.verify import verify_store
from dledger.storage.opening import open_settings
from dledger.storage.recovery.open_files import StoreSettings
from dledger.storage.recovery.snapshot_install import INSTALL_SUFFIX
from dledger.types import Index, NodeId, Term
from verification.disk.memory_disk import MemoryDisk
from verification.disk_states.promise import (
    NotStarted,
    Promise,
    apply_entries,
    check_catalog,
    check_log,
    check_state,
    damaged_runs,
    in_common,
    require,
)

LATER_BODIES = (b"written after the crash", b"", b"and so is this" * 9)


def check_start(settings: StoreSettings, disk: MemoryDisk, promise: Promise) -> None:
    """The next process starts by itself, finds what was promised, says nothing that a power cut
    takes back, and goes on: writes, votes, saves its catalog, and finds all of that again behind
    another power cut.

    Raises:
        BrokenPromise: it does not.
    """
    try:
        found = _first_start(settings, disk, promise)
        disk.reboot(power=True)
        found = _second_start(settings, disk, found)
        disk.reboot(power=True)
        _third_start(settings, disk, found)
    except DLedgerError as error:
        raise NotStarted(f"{type(error).__name__}: {error}") from error


def check_started(store: FileStore, promise: Promise, started: bool = True) -> Promise:
    """Check that a store that was just ``started`` holds the promise. Returns the promise that its
    present state makes from here on.

    Raises:
        BrokenPromise: the store does not hold it.
    """
    promise = promise.found_at(store.begin_index)
    log = check_log(store, promise, started)
    check_state(store, promise)
    check_group(store, promise)
    state = store.hard_state
    return replace(
        promise,
        memberships=(store.membership,) if promise.memberships else (),
        versions=(version_of(store),),
        logs=(log,),
        durable=Index(len(log) - 1),
        votes=((state.term, state.voted_for),),
        commit=state.commit_hint,
        begins=(store.begin_index,),
        identity=store.identity,
    )


def version_of(store: FileStore) -> int:
    """The group's version, as the store's record has it."""
    return store._parts.record.group_version


def check_group(store: FileStore, promise: Promise) -> None:
    """Check what the store keeps about its group.

    Raises:
        BrokenPromise: the membership or the version is neither the old one nor the new one.
    """
    membership, version = store.membership, version_of(store)
    require(
        not promise.memberships or membership in promise.memberships,
        f"the membership is {membership}, but {promise.memberships} was saved",
    )
    require(
        version in promise.versions,
        f"the group has version {version}, but {promise.versions} was saved",
    )


def _open(settings: StoreSettings, disk: MemoryDisk, promise: Promise) -> tuple[FileStore, Promise]:
    store = open_settings(settings, disk, BackgroundState.MANUAL)
    return store, check_started(store, promise)


def _first_start(settings: StoreSettings, disk: MemoryDisk, promise: Promise) -> Promise:
    store, found = _open(settings, disk, promise)
    left = [path for path in disk.names if path.name.endswith(INSTALL_SUFFIX)]
    require(not left, f"files of a state that was or was not taken over are left: {left}")
    if found.catalog:
        catalog = Checkpoints(settings.directory, disk).restore(store)
        check_catalog(catalog, found.logs[0], found, store.begin_index)
    return found


def _second_start(settings: StoreSettings, disk: MemoryDisk, promise: Promise) -> Promise:
    """The state that the first start reported still holds, although that start wrote no entry; then
    new entries come."""
    store, promise = _open(settings, disk, promise)
    log = follow(store, promise)
    vote = (Term(store.hard_state.term + 1), NodeId("n1"))
    store.save_hard_state(HardState(*vote, store.hard_state.commit_hint))
    more = stamp_all(store.end, vote[0], 1, LATER_BODIES, settings.segment_bytes)
    store.append(more)
    durable = store.sync().index
    require(
        durable == len(log) + len(more) - 1,
        f"a sync says {durable} of {len(log) + len(more)} entries",
    )
    promise = replace(promise, logs=((*log, *more),), durable=durable, votes=(vote,))
    if promise.catalog:
        checkpoints = Checkpoints(settings.directory, disk)
        catalog = checkpoints.restore(store)
        apply_entries(catalog, promise.logs[0][catalog.applied_index + 1 :])
        checkpoints.save(catalog.snapshot(), catalog.applied_index, store)
        promise = replace(promise, checkpoint=catalog.applied_index)
    return promise


def _third_start(settings: StoreSettings, disk: MemoryDisk, promise: Promise) -> None:
    store, promise = _open(settings, disk, promise)
    if promise.catalog:
        catalog = Checkpoints(settings.directory, disk).restore(store)
        check_catalog(catalog, promise.logs[0], promise, store.begin_index)
    repair_all(store, promise)
    store.close()
    problems = verify_store(settings.directory, disk)["problems"]
    require(not problems, f"verify finds {problems[:3]}")


def follow(store: FileStore, promise: Promise) -> tuple[Entry, ...]:
    """Have the log come up to the catalog that was taken over, as the leader sees to it; returns
    the log."""
    log, origin = promise.logs[0], promise.origin
    same = in_common(log, origin)
    if same == len(origin):
        return log
    if same < len(log):
        store.truncate(Index(same - 1))
    store.append(origin[same:])
    return origin


def repair_all(store: FileStore, promise: Promise) -> None:
    """Put every damaged entry back; those side by side at once, because only sound neighbours vouch
    for them."""
    for run in damaged_runs(promise):
        store.repair(*run)
