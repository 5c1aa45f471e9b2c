"""Scripts of calls that nodes make to their stores: each touches one mechanism from all sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dledger.protocol.messages.catalog_commands import (
    Command,
    CreateTopic,
    DeleteTopic,
    InitProducer,
)
from dledger.protocol.messages.membership import Change, Member, MemberRole, Membership
from dledger.protocol.wire import encode_command
from dledger.raft.roles.snapshot_install import InstallMode
from dledger.records.body.header import BodyHeader, BodyKind, encode_header
from dledger.storage.background import BackgroundState
from dledger.storage.meta.hard_state import STATE_FILE
from dledger.storage.meta.members import MEMBERS_FILE
from dledger.storage.recovery.open_files import StoreSettings
from dledger.storage.recovery.snapshot_install import INSTALL_FILE
from dledger.types import Index, NodeId, Position, Term
from verification.disk.memory_inode import SECTOR
from verification.disk_states.giver import Giver
from verification.disk_states.life import StoreLife
from verification.disk_states.recording import RecordingDisk

PAGE: Final = 4096
ROOT: Final = Path("/disk/group/n0")
"""Two of these directories are made by the store itself."""


SMALL: Final = StoreSettings(
    directory=ROOT,
    node_id=NodeId("n0"),
    segment_bytes=1024,
    index_file_bytes=320,
    disk_reserve_bytes=0,
)
"""Files so small that a dozen entries need several."""
PAGES: Final = replace(SMALL, segment_bytes=4 * PAGE, index_file_bytes=2 * PAGE)
RETAINED: Final = replace(SMALL, retention_bytes=3 * 1024)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One script."""

    name: str
    run: Callable[[StoreLife], None]
    settings: StoreSettings = SMALL
    grain: int = SECTOR
    keeping: BackgroundState = BackgroundState.MANUAL
    record: str = ""
    """A record that tells a start what to do: the script is crashed in every way there is, and its
    process also killed behind each write to the file of that name, before it is synced, to crash
    the start that goes by it."""

    def life(self, disk: RecordingDisk, tell: Callable[..., None]) -> StoreLife:
        """A node that can live it."""
        return StoreLife(self.settings, disk, self.keeping, tell)


def afterwards(life: StoreLife) -> None:
    """The work of a node that was started again: a little of everything."""
    life.open()
    life.follow()
    life.append([120, 40])
    term = life.store.hard_state.term + 1
    life.save(term, "n2")
    life.append_synced([300])
    life.keep()
    life.truncate(len(life.log) - 2)
    life.append_synced([77, 30])


def group_commit(life: StoreLife) -> None:
    """Several appends to a sync, several syncs to a round of housekeeping, over the ends of files
    of both kinds."""
    life.open()
    life.save(1)
    life.save(1, "n1")
    for size in (100, 300, 500, 20):
        life.append([size, size // 2])
        life.append_synced([size // 3])
        life.commit(life.promise.durable - 1)
    life.keep()
    life.save(2, "n0")
    life.append([-1, 900, 10])
    life.append_synced([928])
    life.keep()
    life.append([200, 0, 1])


def rolls(life: StoreLife) -> None:
    """Entries that leave no, the least and a little more padding behind them; empty bodies; one
    entry a file."""
    life.begin()
    for sizes in ([968], [967, 40], [300, 612], [300, 611], [0] * 5, [920, 928, 900], [968, 968]):
        life.append_synced(sizes)
        life.keep()
    life.close()
    life.open()
    life.append_synced([968, 10])


def truncations(life: StoreLife) -> None:
    """Cuts within a file, over three files, to the start; synced and unsynced tails; other entries
    in their place."""
    life.begin("n1")
    life.append_synced([300] * 9)
    life.keep()
    life.commit(0)
    life.append([200] * 3)
    life.save(2)
    life.truncate(2)
    life.append_synced([500, 20, 20])
    life.save(3, "n0")
    life.append([600] * 3)
    life.truncate(6)
    life.append([50])
    life.truncate(4)
    life.append_synced([50] * 4)
    life.commit(5)
    life.truncate(5)


def truncation_to_the_start(life: StoreLife) -> None:
    """No entry was committed yet, and no entry stays."""
    life.begin("n1")
    life.append_synced([400] * 6)
    life.save(2, "n2")
    life.truncate(-1)
    life.append_synced([700, 30])
    life.truncate(-1)
    life.append_synced([5])


def votes(life: StoreLife) -> None:
    """Terms and votes one after the other, with and without commit marks, between appends."""
    life.open()
    for term in range(1, 8):
        life.save(term)
        life.save(term, f"n{term % 3}")
        if term % 2:
            life.append_synced([60 * term, 10])
            life.commit(life.promise.durable - 1)
            life.save(term, f"n{term % 3}")
    life.close()
    life.open()
    life.save(9, "n1")


def restarts(life: StoreLife) -> None:
    """Orderly stops, each followed by more."""
    for term in range(1, 4):
        life.open()
        life.save(term, "n0")
        life.append_synced([150, 350, 90])
        life.commit(life.promise.durable)
        life.append([40])
        life.close()


def command(order: Command) -> bytes:
    """The body of an entry that says so."""
    return encode_header(BodyHeader(BodyKind.COMMAND)) + encode_command(order)


def batch(topic_id: int, count: int, size: int, producer_id: int = 0, sequence: int = 0) -> bytes:
    """The body of an entry with so many records. No store and no catalog looks behind the
    header."""
    header = BodyHeader(BodyKind.DATA, topic_id, 0, count, 5, 9, producer_id, 0, sequence)
    return encode_header(header) + bytes((topic_id * 3 + count + n) % 250 + 1 for n in range(size))


TOPIC_A: Final = command(CreateTopic(name="a", log_id="1"))
TOPIC_B: Final = command(CreateTopic(name="b", log_id="2"))


def checkpoints(life: StoreLife) -> None:
    """Catalogs saved between appends, topics that come and go, a restart from the middle one."""
    life.begin(catalog=True)
    life.append_bodies([TOPIC_A, TOPIC_B])
    life.sum_up(0)
    for turn in range(3):
        life.append_bodies([batch(1, 3 + turn, 90), batch(2, 5, 40), batch(1, 1, 200)])
        life.sum_up(1)
    life.append_bodies([command(DeleteTopic(name="b")), command(InitProducer(producer_name="p"))])
    life.append_bodies([batch(1, 2, 30)])
    life.sum_up(0)
    life.close()
    life.open()
    life.open_catalog()
    life.append_bodies([batch(1, 4, 60)] * 2)
    life.sum_up(0)
    life.append_bodies([batch(1, 1, 10)])
    life.sync()
    life.checkpoint()


def retention(life: StoreLife) -> None:
    """Files that go from the front, once the catalog is saved; appends and cuts behind them."""
    life.begin(catalog=True)
    life.append_bodies([TOPIC_A])
    for turn in range(3):
        life.append_bodies(
            [batch(1, turn + 1, 150), batch(1, 2, 250), batch(1, 1, 380), batch(1, 7, 20)]
        )
        life.sum_up(1)
        life.retain(life.promise.checkpoint - 2)
    life.save(2, "n1")
    life.truncate(len(life.log) - 2)
    life.append_bodies([batch(1, 9, 33)] * 12)
    life.sum_up(0)
    life.checkpoint()
    life.retain(life.promise.checkpoint)


def repair(life: StoreLife) -> None:
    """Entries that rot at rest in the first, a middle and the last place, and are repaired, while
    others come."""
    life.begin()
    life.append_synced([300, 100, 420, 30, 500, 10, 200])
    life.commit(6)
    life.close()
    for index, offset in ((0, 60), (3, 20), (6, 50), (4, 47)):
        life.rot(index, offset)
        if index % 2 == 0:
            life.open()
            life.repair(index)
            life.append_synced([90])
            life.close()


def rot_behind_a_kill(life: StoreLife) -> None:
    """Damage in the part of the log that the next start reads anyway: durable, committed and not,
    and never synced."""
    life.begin()
    life.append_synced([200, 340, 100, 20, 430])
    life.commit(1)
    life.keep()
    life.append([60, 70])
    life.die()
    life.rot(1, 100)
    life.rot(4, 10)
    life.open()
    life.repair(1)
    life.append_synced([150, 20])
    life.keep()
    life.die()
    life.open()
    life.repair(4)


def members(life: StoreLife) -> None:
    """The record of who counts: made by the first save, then another one by each change of members,
    applied and not, over two starts."""
    life.begin()
    for index in range(2):
        life.append_synced([100])
        life.count(_membership(index, "n0", "n1", "n2"))
    life.close()
    life.open()
    life.count(_membership(1, "n0", "n1", "n2", joins="n3"))
    life.append_synced([40])
    life.count(_membership(2, "n0", "n1", "n2", "n3"))


def _membership(index: int, *names: str, joins: str = "") -> Membership:
    """As of an entry, with a change behind it that adds a member."""
    listed = tuple(_member(name) for name in names)
    plain = Membership(0, Index(index), term=Term(1), group_id="g").with_list(listed)
    if not joins:
        return plain
    at = Position(Term(1), Index(index + 1))
    change = Change(at, Index(index), NodeId(joins), 9, (*listed, _member(joins)))
    return replace(plain, changes=(change,))


def _member(name: str) -> Member:
    return Member(NodeId(name), "host", 7000, MemberRole.VOTER, 5)


def upgrade(life: StoreLife) -> None:
    """The group gets another version between votes and appends."""
    life.begin()
    life.append_synced([100])
    life.commit(0)
    life.upgrade(1)
    life.save(2, "n1")
    life.append_synced([60])
    life.close()
    life.open()
    life.save(3)


def started_again(life: StoreLife) -> None:
    """A start alone."""
    life.open()


def _fill(life: StoreLife, runs: int) -> None:
    """A log of up to four files and a saved catalog, each as small as it can be, and one entry that
    is not synced: few enough changes at a time that every state that a crash may leave can be
    looked at."""
    life.begin(catalog=True)
    sizes = [(1, 1, 200), (2, 2, 150), (1, 3, 400), (1, 1, 300), (2, 4, 500), (1, 2, 700)]
    batches = [batch(topic, count, size) for topic, count, size in sizes]
    for bodies in ([TOPIC_A, TOPIC_B, *batches[:2]], batches[2:4], batches[4:])[:runs]:
        life.append_bodies(bodies)
        life.sync()
        life.keep()
    life.commit(len(life.log) - 2)
    life.checkpoint()
    life.append_bodies([batch(1, 2, 20)])


def front_taken_over(life: StoreLife) -> None:
    """An entry rots of which no member has a copy any more, but all that it meant is in the
    catalog."""
    _fill(life, 3)
    life.rot(2, 60)
    giver = Giver(life.settings.segment_bytes, life.log)
    giver.append(1, [batch(2, 1, 30)])
    life.take_over(giver, giver.first_after(2), InstallMode.KEEP, catalog=False)
    life.append_synced([90])


def state_taken_over(life: StoreLife) -> None:
    """The catalog is another one from then on, and ahead of the log, which stays."""
    _fill(life, 3)
    giver = Giver(life.settings.segment_bytes, life.log)
    giver.append(1, [command(DeleteTopic(name="b")), batch(1, 4, 600), batch(1, 1, 40)])
    life.take_over(giver, giver.first_after(2), InstallMode.KEEP)
    life.follow(1)
    life.sync()


def log_replaced(life: StoreLife) -> None:
    """A log that went another way, and further, gives its place to one that begins with a single
    entry; the front of that one goes while the catalog is still ahead of it; and then all of it,
    because the node was left behind."""
    _fill(life, 1)
    common = len(life.log) - 1
    life.append_bodies([batch(2, 1, 5)] * 3)
    life.sync()
    giver = Giver(life.settings.segment_bytes, life.log[:common])
    giver.append(
        2, [command(DeleteTopic(name="b")), batch(1, 4, 600), batch(1, 9, 800), batch(1, 1, 700)]
    )
    life.save(3, "n1")
    life.take_over(giver, giver.first_after(common), InstallMode.REPLACE)
    life.follow(1)
    life.sync()
    life.take_over(
        giver, giver.first_after(life.log[-1].index - 1), InstallMode.KEEP, catalog=False
    )
    giver.append(3, [batch(1, 3, 500), batch(1, 2, 640)])
    life.take_over(giver, giver.first_after(len(life.log) - 1), InstallMode.REPLACE)
    life.follow()
    life.sync()


SCENARIOS: Final = (
    Scenario("group commit", group_commit),
    Scenario("group commit, housekeeping at once", group_commit, keeping=BackgroundState.INLINE),
    Scenario("group commit, sectors of larger files", group_commit, PAGES),
    Scenario("group commit, pages", group_commit, PAGES, PAGE),
    Scenario("rolls", rolls),
    Scenario("rolls, housekeeping at once", rolls, keeping=BackgroundState.INLINE),
    Scenario("truncations", truncations),
    Scenario("truncations, pages", truncations, PAGES, PAGE),
    Scenario("truncation to the start", truncation_to_the_start),
    Scenario("votes", votes),
    Scenario("restarts", restarts),
    Scenario("checkpoints", checkpoints),
    Scenario("retention", retention, RETAINED),
    Scenario("repair", repair),
    Scenario("rot behind a kill", rot_behind_a_kill),
    Scenario("members", members, record=MEMBERS_FILE),
    Scenario("group version", upgrade, record=STATE_FILE),
    Scenario("front taken over", front_taken_over, record=INSTALL_FILE),
    Scenario("state taken over", state_taken_over, record=INSTALL_FILE),
    Scenario("log replaced", log_replaced, record=INSTALL_FILE),
)
