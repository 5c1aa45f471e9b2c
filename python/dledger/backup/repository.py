"""The backups of one group at one place: which there are, which are under way, and dropping old
ones."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from dledger.backup.chunks import CHUNKS, chunk_path, digest
from dledger.backup.manifest import MANIFESTS, LogChunk, Manifest
from dledger.backup.target import Target
from dledger.errors import ConfigError, CorruptStore, PathError, Unavailable

logger = logging.getLogger(__name__)

RUNNING: Final = "running"
STALE_S: Final = 900.0
"""A backup that has said nothing for so long was killed."""
TORN_S: Final = 86_400.0
"""One whose sign cannot be read has begun so long ago at most, or was killed."""
READS: Final = 3
"""Of a sign that cannot be read, in a second: it may be written just now."""
SIGN_S: Final = 30.0
"""Between two signs of life."""
WAIT_S: Final = 300.0
"""How long a backup waits for another one that drops old ones."""

_NO_BACKUP: Final = (
    "this place loses files. No backup was made: run the command again, or name another place"
)


def wall_s() -> float:
    """Seconds since 1970: machines with backups to one place must roughly agree on them."""
    return time.time()


@dataclass(slots=True)
class Sign:
    """A backup's sign of life: what it has copied of the log is of use to the next one, if it is
    killed."""

    id: str
    """Ends with the second in which it has begun."""
    time_s: float
    group_id: str = ""
    drops: bool = False
    """It is dropping old backups: no other one may begin."""
    log: list[LogChunk] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"{RUNNING}/{self.id}.json"

    def encode(self) -> bytes:
        value = {
            "time_s": self.time_s, "group_id": self.group_id, "drops": self.drops, "log": self.log
        }  # fmt: skip
        text = json.dumps(value).encode()
        return b"%s\n%s" % (text, digest(text).encode())

    @staticmethod
    def decode(name: str, data: bytes) -> Sign | None:
        """None: it was not written to its end, or is damaged."""
        data, _, said = data.rpartition(b"\n")
        if digest(data).encode() != said:
            return None
        try:
            value = json.loads(data)
            log = [LogChunk(*one) for one in value["log"]]
            return Sign(name, float(value["time_s"]), value["group_id"], bool(value["drops"]), log)
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(slots=True)
class Repository:
    """See the module."""

    target: Target
    now_s: Callable[[], float] = field(default=wall_s)
    sleep: Callable[[float], None] = field(default=time.sleep)

    def names(self) -> list[str]:
        """Of the manifests, oldest first."""
        found = self.target.sizes(MANIFESTS)
        return sorted(name.removesuffix(".json") for name in found if name.endswith(".json"))

    def manifest(self, name: str) -> Manifest:
        """The backup of this name, or the only one whose name begins so.

        Raises:
            ConfigError: there is none, or several.
            CorruptStore: its manifest is damaged.
        """
        names = self.names()
        found = [one for one in names if one == name] or [n for n in names if n.startswith(name)]
        if len(found) != 1:
            raise ConfigError(
                f"{self.target.url} has {len(found) or 'no'} backup{'s' * (len(found) != 1)} whose "
                f"name begins with {name!r}; 'dledger backup list {self.target.url}' shows all"
            )
        return self._read(found[0])

    def newest(self) -> Manifest:
        """Raises as `manifest`."""
        names = self.names()
        if not names:
            raise ConfigError(
                f"there is no backup at {self.target.url}: is it the URL that 'dledger backup' was "
                "given?"
            )
        return self._read(names[-1])

    def _read(self, name: str) -> Manifest:
        path = f"{MANIFESTS}/{name}.json"
        return Manifest.decode(name, self.target.read(path), f"{self.target.url}/{path}")

    def manifests(self) -> tuple[list[Manifest], list[str]]:
        """Those that can be read, oldest first; and what is wrong with the others."""
        sound: list[Manifest] = []
        wrong: list[str] = []
        for name in self.names():
            try:
                sound.append(self._read(name))
            except (CorruptStore, PathError) as error:
                wrong.append(str(error))
        return sound, wrong

    def chunks(self) -> dict[str, int]:
        """The bytes of each chunk that is there, by name."""
        found = self.target.sizes(CHUNKS)
        return {path.rpartition("/")[2]: size for path, size in found.items()}

    def add(self, manifest: Manifest) -> None:
        """A backup whose chunks are written counts from here on.

        Raises:
            CorruptStore: the place has not kept what was written there: no backup was made.
        """
        there = self.chunks()
        for name, size in manifest.chunks.items():
            if there.get(name) != size:
                raise CorruptStore(
                    f"{self.target.url}/{chunk_path(name)} was written and is not there "
                    f"({there.get(name, 'no')} bytes, {size} are due): {_NO_BACKUP}"
                )
        data = manifest.encode()
        self.target.write(manifest.path, data)
        if manifest.name not in self.names() or self.target.read(manifest.path) != data:
            self.target.remove(manifest.path)
            raise CorruptStore(
                f"{self.target.url}/{manifest.path} was written and other bytes are there, or "
                f"none: {_NO_BACKUP}"
            )

    # --- backups that are under way ---------------------------------------------------------------

    def signs(self) -> list[Sign]:
        """Of all backups that are under way, or were killed."""
        found: list[Sign] = []
        for path in self.target.sizes(RUNNING):
            with suppress(PathError):  # it has ended
                found.append(self._sign(path.removesuffix(".json")))
        return found

    def _sign(self, name: str) -> Sign:
        for read in range(READS):
            if read:
                self.sleep(1.0 / READS)
            if sign := Sign.decode(name, self.target.read(f"{RUNNING}/{name}.json")):
                return sign
        begun = name.rpartition("-")[2]
        now_s = self.now_s()
        is_old = begun.isdecimal() and now_s - int(begun) >= TORN_S
        return Sign(name, 0.0 if is_old else now_s)

    def is_alive(self, sign: Sign) -> bool:
        return self.now_s() - sign.time_s < STALE_S

    def begin(self, group_id: str) -> Sign:
        """A backup begins; waits for one that drops chunks.

        Raises:
            Unavailable: that takes too long.
        """
        own = Sign(f"{uuid.uuid4().hex}-{self.now_s():.0f}", self.now_s(), group_id)
        self.say(own)
        until_s = self.now_s() + WAIT_S
        while True:
            others = [sign for sign in self.signs() if sign.id != own.id and self.is_alive(sign)]
            if not any(sign.drops for sign in others):
                return own
            if self.now_s() > until_s:
                self.end(own)
                raise Unavailable(
                    f"another backup has been dropping old ones at {self.target.url} for "
                    f"{WAIT_S:.0f} s: wait for it. If it was killed, it counts as gone "
                    f"{STALE_S / 60:.0f} minutes after that"
                )
            self.sleep(1.0)
            self.say(own)

    def say(self, sign: Sign) -> None:
        """A sign of life."""
        sign.time_s = self.now_s()
        self.target.write(sign.path, sign.encode())

    def end(self, sign: Sign) -> None:
        self.target.remove(sign.path)

    def give_up(self, own: Sign) -> None:
        """A backup has failed: the next one takes up what it has copied."""
        own.time_s = 0.0
        self.target.write(own.path, own.encode())

    def tidy(self) -> None:
        """Remove the signs and rests of backups that were killed or given up: a whole one is
        there."""
        self.target.remove_rests(self.now_s() - STALE_S)
        for sign in self.signs():
            if not self.is_alive(sign):
                self.end(sign)

    # --- dropping ---------------------------------------------------------------------------------

    def drop(self, own: Sign, keep: int) -> tuple[int, str]:
        """Drop all backups but the newest ``keep``, and then chunks that no backup needs; nothing
        while another backup is under way, which may count on any chunk that it has seen.

        Returns:
            How many backups are dropped; and why nothing was done, or "".
        """
        own.drops = True
        self.say(own)  # before the look at the others: of two that do this, one sees the other
        others = [sign for sign in self.signs() if sign.id != own.id]
        sound, wrong = self.manifests()
        if any(map(self.is_alive, others)):
            return 0, "another backup is under way; the next 'dledger backup --keep' drops them"
        if wrong:
            return 0, f"nobody knows which chunks a damaged backup needs: {wrong[0]}"
        old, kept = sound[:-keep], sound[-keep:]
        # for good, before the first of their chunks goes
        self.target.remove(*(manifest.path for manifest in old))
        needed = {name for manifest in kept for name in manifest.chunks}
        self.tidy()
        self._remove_but(needed)
        return len(old), ""

    def _remove_but(self, needed: set[str]) -> None:
        self.target.remove(*(chunk_path(name) for name in self.chunks() if name not in needed))


def of_group(manifests: Sequence[Manifest], group_id: str, url: str) -> None:
    """Raises `ConfigError` where backups are of another group."""
    for manifest in manifests:
        if manifest.group_id != group_id:
            raise ConfigError(
                f"{url} has backups of the group {manifest.group_id or manifest.group!r}, and this "
                f"is the group {group_id!r}: name a place of its own for each group"
            )
