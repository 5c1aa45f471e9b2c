"""Settings of a message store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from dledger.rocketmq.dispatch.build_consume_queue import Reput
from dledger.storage.disk.disk import Disk


class MessageStoreSettings(TypedDict, total=False):
    """Settings of a store, by the names that they have here and in a broker's configuration."""

    file_size: int
    """mappedFileSizeCommitLog."""
    units_in_file: int
    """mappedFileSizeConsumeQueue / 20."""
    index_slots: int
    """maxHashSlotNum."""
    index_units: int
    """maxIndexNum."""
    index: bool
    """messageIndexEnable."""
    clock: Callable[[], int]
    """Milliseconds since 1970."""
    cut_damage: bool
    """Let the log end before damage even where messages that were on the disk stand behind it."""
    disk: Disk
    """Where the files are."""
    reput: type[Reput]
    """`dledger.rocketmq.dispatch.reput_columns.ColumnReput` is several times as fast where much
    comes at once."""
