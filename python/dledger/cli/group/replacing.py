"""``dledger members replace``: one member takes the place of another, step by step.

Each step is a change of one member, which the leader checks. The list of members remembers what the
new one is for, so the next step follows from what the leader says alone: a command that was
interrupted is said again, and goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from dledger.cli.group.filling import Filling
from dledger.cli.group.node_states import State
from dledger.client.catching_up import CatchingUp, looks
from dledger.config import nearest
from dledger.errors import ConfigError

if TYPE_CHECKING:
    from dledger.client import Client


@dataclass(frozen=True, slots=True)
class Replacement:
    """What an operator asks for."""

    old: str
    new: str
    address: str
    rack: str | None = None
    """Where the new one stands."""


class ReplaceStep(Enum):
    """What comes next."""

    ADD = "the new one becomes a member that does not count"
    WAIT = "the new one gets what it lacks"
    PROMOTE = "the new one votes and counts"
    REMOVE = "the old one is removed"
    DONE = "there is nothing left to do"


def next_step(leader: State, wanted: Replacement) -> ReplaceStep:
    """What comes next, by what the leader says.

    A voter that is alive is removed last, and a dead one before the new one is promoted. With three
    voters that live, promoting first makes four, of which one may fail at any time; removing first
    would leave two, and none may fail. With one of three dead, neither order lets another one fail
    (three of four have to live, or two of two); removing first needs one machine less, and not the
    new one. In both cases the new one has everything first, so that this state is short, and the
    old one may come back as long as it is needed.

    Raises:
        ConfigError: it cannot be done, with the reason.
    """
    old, new = wanted.old, wanted.new
    roles: dict[str, str] = leader["member_roles"]
    standing = leader["standings"].get(new, {})
    is_marked = leader["replacing"].get(new) == old
    if new not in roles:
        if old not in roles:
            known = sorted(roles)
            raise ConfigError(
                f"{old!r} is not a member{nearest(old, known)}; members: {', '.join(known)}"
            )
        return ReplaceStep.ADD
    _check_new(leader, wanted, is_marked=is_marked)
    if old not in roles and not is_marked:
        return ReplaceStep.DONE
    if roles[new] == "VOTER":
        return ReplaceStep.REMOVE
    if not standing.get("near"):
        return ReplaceStep.WAIT
    if old not in roles:
        return ReplaceStep.PROMOTE
    is_alive = old == leader["node_id"] or leader["standings"].get(old, {}).get("heard", False)
    return ReplaceStep.PROMOTE if roles[old] == "VOTER" and is_alive else ReplaceStep.REMOVE


def _check_new(leader: State, wanted: Replacement, *, is_marked: bool) -> None:
    """The new one is a member already: as a former command has made it, or else it is refused."""
    old, new = wanted.old, wanted.new
    roles, place = leader["member_roles"], leader["member_addresses"].get(new)
    if old in roles and not is_marked:
        raise ConfigError(
            f"{new} is a member already, as {roles[new].lower()}, and was not added to replace "
            f"{old}: choose another id for the new node, or promote and remove by yourself"
        )
    if place != wanted.address:
        raise ConfigError(f"{new} is a member already, at {place}: say {new}={place}")


def replace_member(client: Client, wanted: Replacement, patience_s: float, shown: Filling) -> bool:
    """All steps that are left; False where there was none.

    Raises:
        ConfigError: it cannot be done, with the reason.
        Unavailable: the new one does not answer, or gets no further.
    """
    old, new = wanted.old, wanted.new
    way: CatchingUp | None = None
    did_any = False
    for leader, found in looks(client, patience_s):
        _check_leader(leader)
        step = next_step(leader, wanted)
        if step is ReplaceStep.DONE:
            return did_any
        did_any = True
        if step is ReplaceStep.WAIT:
            way = way or CatchingUp(new, patience_s, tell=shown.tell, moved=shown.moved)
            way.look(found)
        elif step is ReplaceStep.ADD:
            client.add_member(new, wanted.address, rack=wanted.rack, replaces=old)
            shown.tell(f"{new} gets the log, and does not count yet")
        elif step is ReplaceStep.PROMOTE:
            client.promote_member(new)
            shown.tell(f"{new} is a voter")
        else:
            client.remove_member(old)
            shown.tell(f"{old} is no member")
    raise AssertionError("it is looked at again and again")


def _check_leader(leader: State) -> None:
    if "standings" not in leader:
        raise ConfigError(
            f"{leader['node_id']}, which leads, is of a release that knows no replacement, or does "
            "not describe the cluster to this user"
        )
