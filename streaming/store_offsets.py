"""How far a stream has read a store's files, as Spark's checkpoint keeps it. Pure.

::

    {"v": 1, "store": {"commitlog": 1048576, "dledger": 2097152}}

The numbers are places in the log, at the border between two messages; an upgraded store has two
logs, and everything below each number is read. As with topics
(`dledger.datasource.options.offsets`), a first offset has ``"init": true``, and the end of the
first batch says in ``"from"`` where that batch starts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from dledger.errors import ConfigError
from dledger.rocketmq.files.tail import Places

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class StoreOffset:
    """One of Spark's offsets."""

    places: Places
    init: bool = False
    """True: a first offset, resolved again at each start; only ``begin`` of the batch's end
    counts."""
    begin: Places = field(default_factory=dict)
    """In a batch's end: where it starts, for logs whose start is not in the offset before."""

    def as_json(self) -> dict[str, Any]:
        """The form that Spark keeps. The same offset is always the same text: Spark compares
        texts."""
        data: dict[str, Any] = {
            "v": FORMAT,
            "store": {name: self.places[name] for name in sorted(self.places)},
        }
        if self.init:
            data["init"] = True
        if self.begin:
            data["from"] = {name: self.begin[name] for name in sorted(self.begin)}
        return data

    @staticmethod
    def from_json(data: dict[str, Any]) -> StoreOffset:
        """Read a checkpoint's offset.

        Raises:
            ConfigError: it was written by something else, or by a newer release.
        """
        try:
            version, places = data["v"], {str(name): int(at) for name, at in data["store"].items()}
            begin = {str(name): int(at) for name, at in data.get("from", {}).items()}
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ConfigError(
                f"the checkpoint holds offsets that are no store's: {json.dumps(data)[:200]}; "
                "give this query a checkpointLocation of its own"
            ) from error
        if version != FORMAT:
            raise ConfigError(
                f"the checkpoint's offsets have format {version}; this release reads {FORMAT}"
            )
        return StoreOffset(places, bool(data.get("init", False)), begin)

    def start_of_batch(self, start: StoreOffset) -> Places:
        """Where the batch that ends here starts, the same at every replay.

        Raises:
            ConfigError: neither offset says it.
        """
        known = {} if start.init else start.places
        places = {name: known.get(name, self.begin.get(name, -1)) for name in self.places}
        for name, at in places.items():
            if at < 0:
                raise ConfigError(
                    f"the checkpoint does not say where the log {name!r} starts; give this query "
                    "a new checkpointLocation"
                )
        return places
