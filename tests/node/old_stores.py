"""A store that a broker has left, for an adoption, and what is in such a store."""

from __future__ import annotations

from pathlib import Path

from dledger.rocketmq.format.message import Message
from dledger.rocketmq.store.message_store import MessageStore

SIZE = 65_536
"""Of a file of the log."""


def make_old_store(root: Path) -> Path:
    """300 messages in two queues, without an index."""
    with MessageStore(root, file_size=SIZE, index=False) as store:
        store.put_messages(
            Message("orders", b"%06d" % n * 50, f"UNIQ_KEY\x01u{n}", n % 2) for n in range(300)
        )
    return root


def files_of(root: Path) -> dict[str, bytes]:
    """Bytes by name, of index files nothing, which have half a gigabyte of holes."""
    files = {
        str(path.relative_to(root)): path for path in sorted(root.rglob("*")) if path.is_file()
    }
    return {
        name: b"" if "/rocketmq/index/" in name else path.read_bytes()
        for name, path in files.items()
    }
