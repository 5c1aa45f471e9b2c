"""The events of a node: how its parts hear of one another.

A part subscribes when it is made. Subscribers are called on the node's loop, in the order in which
they subscribed, before the call that tells the event returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, ParamSpec

from dledger.errors import CorruptEntry
from dledger.protocol.messages.membership import Member
from dledger.raft.state.ready import Fact, Finished, Install, ReadDone, RoleChange, TransferDone
from dledger.types import Index, NodeId

P = ParamSpec("P")


class Event(Generic[P]):
    """One kind of event; calling it tells its subscribers."""

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: tuple[Callable[P, object], ...] = ()

    def subscribe(self, subscriber: Callable[P, object]) -> None:
        """Call ``subscriber`` at each event from now on."""
        self._subscribers = (*self._subscribers, subscriber)

    def unsubscribe(self, subscriber: Callable[P, object]) -> None:
        """Call ``subscriber`` no more, from the next event on."""
        self._subscribers = tuple(one for one in self._subscribers if one != subscriber)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for subscriber in self._subscribers:
            subscriber(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class NodeEvents:
    """The events by which the parts of a node tell one another."""

    committed: Event[[Index]] = field(default_factory=Event)
    """All entries up to this one are committed."""
    applied: Event[[]] = field(default_factory=Event)
    """The catalog has taken in some entries."""
    watched: Event[[bool]] = field(default_factory=Event)
    """Requests wait for entries to be applied, or none does any more."""
    members_changed: Event[[]] = field(default_factory=Event)
    """Other incarnations of members count by the catalog."""
    members: Event[[tuple[Member, ...]]] = field(default_factory=Event)
    """The newest list of members in the log is this one, committed or not; empty: that of the
    settings."""
    member_left: Event[[NodeId]] = field(default_factory=Event)
    """This node, which the list has no more, has had the time to hear of it."""
    unlisted: Event[[NodeId, Index, tuple[Member, ...]]] = field(default_factory=Event)
    """This member says that this node is none by this committed entry, which has this list; empty
    where this node does not know its group yet."""
    given_up: Event[[Finished]] = field(default_factory=Event)
    """Raft waits no more for the quorum of a range of proposals, for the reason in ``code``."""
    read_done: Event[[ReadDone]] = field(default_factory=Event)
    """A read index was confirmed, or cannot be."""
    role: Event[[RoleChange]] = field(default_factory=Event)
    transferred: Event[[TransferDone]] = field(default_factory=Event)
    """An attempt to hand leadership over is at its end."""
    install: Event[[Install]] = field(default_factory=Event)
    """The leader's log begins behind the end of this node's."""
    fact: Event[[Fact]] = field(default_factory=Event)
    """Raft met something that an operator should read."""
    damage: Event[[CorruptEntry]] = field(default_factory=Event)
    """A committed entry cannot be read; other nodes may have it."""
    cut_waits: Event[[CorruptEntry]] = field(default_factory=Event)
    """The log is to be cut behind a damaged entry, which has to be repaired before."""
    cut: Event[[Index]] = field(default_factory=Event)
    """The log now ends with this entry."""
    repaired: Event[[]] = field(default_factory=Event)
    """Some damaged entries are sound again."""
    no_copy: Event[[dict[NodeId, str]]] = field(default_factory=Event)
    """No member can repair some damaged entries, for these reasons."""
    peer_found: Event[[NodeId]] = field(default_factory=Event)
    """The link to this member is open anew."""
    member_taken: Event[[NodeId]] = field(default_factory=Event)
    """A connection of this member is a session by now; `Gate.supporting` has its hello."""
    relieved: Event[[]] = field(default_factory=Event)
    """Requests that were held in memory were answered."""
    secret_enforced: Event[[]] = field(default_factory=Event)
    """Members have to prove the group's secret from this entry on."""
    quotas_altered: Event[[]] = field(default_factory=Event)
    """Principals have other quotas from this entry on."""
    version_raised: Event[[]] = field(default_factory=Event)
    """The group has a newer version from this entry on."""
    settings_altered: Event[[]] = field(default_factory=Event)
    """The group keeps other settings from this entry on."""
    access_changed: Event[[]] = field(default_factory=Event)
    """Principals may do other things from some entry on that was just applied."""
    reload: Event[[]] = field(default_factory=Event)
    """Somebody wants the files that may change to be read again now."""
    settings: Event[[]] = field(default_factory=Event)
    """Some settings of the node are others now."""
    idle: Event[[]] = field(default_factory=Event)
    """No client has used the node for ``idle_timeout_ms``."""
    restart: Event[[Callable[[], None]]] = field(default_factory=Event)
    """The node has to stop, call this, and start again on the files that are there then."""
    fatal: Event[[BaseException]] = field(default_factory=Event)
    """The first error that the node cannot go on with; nothing is sent or acknowledged after it
    (D2)."""
