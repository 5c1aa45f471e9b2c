"""Which replica a reader asks: its order, and where the members of the group stand."""

from __future__ import annotations

from collections.abc import Callable

from dledger.client.protocol.client_state import ClientState, Operation, Request
from dledger.client.protocol.routing import CallPolicy
from dledger.errors import DLedgerError, Unavailable
from dledger.net.address import split_address
from dledger.protocol.messages.client import MetadataRequest, StatusRequest
from dledger.protocol.messages.membership import MemberRole

LEARNER = MemberRole.LEARNER.name


class Replicas:
    """The order in which a reader asks replicas: one as long as it answers well, then the next one.

    Those on the reader's own machine come first, then those in its client's rack. Among these and
    among the others any comes first: readers spread. With a rack, a replica that did not answer
    well is left alone for a time, and then the nearest ones are asked again.
    """

    def __init__(self, core: ClientState, preferred: Callable[[], str]) -> None:
        """``preferred``: the address of one that comes before all others; empty: none."""
        self._core = core
        self._find_preferred = preferred
        self._excused: set[str] = set()
        self._at = 0
        self._arrange()
        self.worked()

    def _arrange(self) -> None:
        core, racks = self._core, self._core.racks
        near, *others = classes = by_distance(core)
        self._changes = racks.changes
        self._near = set(near) if racks.own and others else set()
        """The nearest ones, where others are farther and a rack is given."""
        preferred = self._find_preferred()
        if preferred not in {"", *near}:
            self._near = set()  # it was chosen for another reason than to be near
        self._order = [address for equal in classes for address in _turned(equal, core)]
        if preferred in self._order:
            self._order.remove(preferred)
            self._order.insert(0, preferred)
        if self._near:
            now_ms = core.environment.now_ms()
            self._order.sort(key=lambda address: racks.is_aside(address, now_ms))

    @property
    def address(self) -> str:
        return self._order[self._at % len(self._order)]

    def worked(self) -> None:
        """It answered well; from now on the time of a request counts anew."""
        self._pause_ms = 0.0
        now_ms = self._core.environment.now_ms()
        self._deadline_ms: float = now_ms + self._core.config.request_timeout_ms
        if self._core.racks.own:
            self._excused.clear()
            self._core.racks.worked(self.address, now_ms)

    def failed(self, error: DLedgerError) -> float:
        """Go on to the next one; seconds to wait before, 0 until each one was tried.

        Raises:
            DLedgerError: this error, where no other one knows better or the time is over.
        """
        config, pause_ms = self._core.config, 0.0
        is_elsewhere = getattr(error, "elsewhere", isinstance(error, Unavailable))
        now_ms = self._core.environment.now_ms()
        if is_elsewhere:
            self._put_aside(now_ms)
        self._at += 1
        if not self._at % len(self._order):
            pause_ms = min(max(2 * self._pause_ms, config.retry_min_ms), config.retry_max_ms)
            self._pause_ms = pause_ms
        if now_ms + pause_ms > self._deadline_ms or not is_elsewhere:
            raise error
        return pause_ms / 1000

    def _put_aside(self, now_ms: float) -> None:
        """The time that a near one took is none of the others': a read does not fail by it."""
        address = self.address
        self._core.racks.put_aside(address, now_ms)
        if address in self._near and address not in self._excused:
            self._excused.add(address)
            self._deadline_ms = now_ms + self._core.config.request_timeout_ms

    def leave_for(self, leader: str) -> None:
        """This one is behind the group: the leader knows of each commit first."""
        self._core.racks.put_aside(self.address, self._core.environment.now_ms())
        self._at = self._order.index(leader) if leader in self._order else self._at + 1

    def nearer(self) -> bool:
        """Whether a nearer one may be asked again, or has come."""
        racks = self._core.racks
        if self._changes != racks.changes:
            return True
        if not self._near or self.address in self._near:
            return False
        now_ms = self._core.environment.now_ms()
        return any(not racks.is_aside(address, now_ms) for address in self._near)

    def go_back(self) -> None:
        """Where `nearer`: the next question goes to the nearest one."""
        self._arrange()
        self._at = 0


def by_distance(core: ClientState) -> list[list[str]]:
    """The addresses, those together that are equally near, the nearest first: on this machine, in
    the client's rack, and the others."""
    classes: dict[tuple[bool, bool], list[str]] = {}
    for address in core.routes.addresses():
        is_here = core.environment.is_here(split_address(address)[0])
        distance = not is_here, not core.racks.is_same(address)
        classes.setdefault(distance, []).append(address)
    return [classes[distance] for distance in sorted(classes)]


def _turned(addresses: list[str], core: ClientState) -> list[str]:
    """The same round, begun anywhere."""
    start = core.environment.below(len(addresses))
    return addresses[start:] + addresses[:start]


def preferred_address(core: ClientState, replica: str | None, follow: bool) -> str:
    """The named node's address; for a reader that follows the leader's, which knows of each commit
    first, unless the client's rack makes another one nearer; else any."""
    if replica is not None:
        return core.routes.peers.get(replica, "")
    if not follow or core.routes.leader is None:
        return ""
    if core.racks.own:
        near, *others = by_distance(core)
        if others and core.routes.leader not in near:
            return ""
    return core.routes.leader


def find_nodes(core: ClientState) -> Operation[None]:
    """Fill the routes, for a reader that was given all ids and asked nothing yet; and learn where
    the nodes stand, where that is due."""
    if not core.routes.peers:
        answer, _ = yield Request(MetadataRequest(), CallPolicy(what="find the group's nodes"))
        core.routes.learned(answer)
    if core.racks.is_due(core.environment.now_ms()):
        yield from find_racks(core)


def find_racks(core: ClientState) -> Operation[None]:
    """Learn where the members stand, and the addresses of new ones. A node of a release that knows
    no racks tells none. Where nobody tells, what was known goes on to count."""
    racks = core.racks
    racks.looks(core.environment.now_ms())
    terms = CallPolicy(what="find the racks of the nodes", anybody=True)
    try:
        known, _ = yield Request(MetadataRequest(), terms, (), 1000, 2000)
        said, _ = yield Request(StatusRequest(), terms, (), 1000, 2000)
    except DLedgerError:
        return  # a read that finds nobody says so itself
    if known.leader_id:
        core.routes.learned(known)
    roles = said.status.get("member_roles", {})
    found = {
        node: rack
        for node, rack in said.status.get("member_racks", {}).items()
        if roles.get(node) != LEARNER  # it may lack anything
    }
    racks.learned(found, core.routes.peers, core.environment.now_ms())
