"""The description of a store, from the few bytes that give it: its logs and files, its checkpoint,
its broker's topics."""

from __future__ import annotations

from typing import Any, Final

from dledger.errors import FormatError, PathError
from dledger.rocketmq.files.dledger_end import committed_end, committed_index
from dledger.rocketmq.files.layout import COMMITLOG, DLEDGER, Form, Store
from dledger.rocketmq.files.ranges import first_stored
from dledger.rocketmq.files.storage import NOTHING
from dledger.rocketmq.format.checkpoint import TIMES, StoreCheckpoint
from dledger.rocketmq.format.config_json import decode_config

TOPICS: Final = "config/topics.json"


def inspect_store(store: Store) -> dict[str, Any]:
    """Everything as plain values; times in milliseconds since 1970. No log is read through.

    Raises:
        PathError: a file cannot be read.
    """
    report: dict[str, Any] = {
        "store": store.storage.url,
        "layout": store.layout,
        "logs": [_log(store, form) for form in store.forms],
    }
    if len(store.forms) > 1:
        report["divided_offset"] = store.forms[1].begin
    if store.layout == DLEDGER:
        return report
    names = (store.storage.list() or NOTHING).files
    report["abort_file"] = "abort" in names
    is_dledgers = any(form.base == "" for form in store.forms)  # and not the broker's
    if "checkpoint" in names and not is_dledgers:
        report["checkpoint"] = _checkpoint(store)
    topics = _topics(store)
    if topics is not None:
        report["topics"] = topics
    return report


def _log(store: Store, form: Form) -> dict[str, Any]:
    storage, files = store.storage, form.files
    log: dict[str, Any] = {
        "log": form.name,
        "folder": storage.join(files[0].path.rpartition("/")[0]),
        "begin": form.begin,
        "file_bytes": files[0].span.file_end - files[0].span.start,
        "files": [],
        "faults": [{"start": f.start, "end": f.end, "reason": f.reason} for f in form.faults],
    }
    for file in files:
        one: dict[str, Any] = {"file": file.path, "bytes": file.span.data_end - file.span.start}
        if store.layout != DLEDGER:
            one["first_stored"] = first_stored(storage, file)
        log["files"].append(one)
    if form.name != COMMITLOG:
        log["committed_index"] = committed_index(storage, form)
        log["committed_end"] = committed_end(storage, form)
    return log


def _checkpoint(store: Store) -> dict[str, int] | str:
    try:
        found = StoreCheckpoint.decode(store.storage.read("checkpoint", 0, 4096))
    except FormatError as error:
        return str(error)
    return {name: getattr(found, name) for name in TIMES}


def _topics(store: Store) -> dict[str, int] | str | None:
    """Topic -> queues to read, as the broker's configuration has them; None without one."""
    try:
        table = decode_config(store.storage.read(TOPICS))["topicConfigTable"]
        return {str(name): int(one["readQueueNums"]) for name, one in sorted(table.items())}
    except PathError:
        return None
    except (FormatError, KeyError, TypeError, ValueError, AttributeError) as error:
        return f"{TOPICS} cannot be read: {error}"
