"""The list of members that a request to change one leads to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dledger.config import check_rack, nearest
from dledger.errors import ConfigError
from dledger.net.address import join_address
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.member_requests import AlterMemberRequest, MemberAction
from dledger.protocol.messages.membership import Member, MemberRole
from dledger.types import NodeId

Members = tuple[Member, ...]


class NotPossible(Exception):
    """A change is refused: it contradicts the list, or, by another code, only cannot be now."""

    def __init__(self, text: str, code: Code = Code.UNEXPECTED_ARGUMENT) -> None:
        super().__init__(text)
        self.code = code


def altered(listed: Members, request: AlterMemberRequest, heard: Mapping[NodeId, int]) -> Members:
    """The list that a request leads to; the same one where it is so already.

    Raises:
        NotPossible: it contradicts the list.
    """
    node = request.node_id
    _check_rack(request.rack)
    known = next((member for member in listed if member.id == node), None)
    if request.action is MemberAction.ADD:
        return _added(listed, request, known)
    if request.action is MemberAction.REMOVE:
        return listed if known is None else _removed(listed, known)
    known = _member(listed, node)
    if request.action is MemberAction.READDRESS:
        other = _readdressed(listed, known, request)
    elif request.action is MemberAction.PROMOTE:
        other = _promoted(listed, known, heard)
    elif request.action is MemberAction.LABEL:
        other = replace(known, rack=request.rack)
    elif known.role is MemberRole.VOTER:
        other = replace(known, role=MemberRole.LEARNER)
    else:
        other = known
    return tuple(other if member is known else member for member in listed)


def _check_rack(rack: str) -> None:
    """A client of another kind may send anything; empty is none."""
    try:
        if rack:
            check_rack(rack)
    except ConfigError as error:
        raise NotPossible(str(error)) from None


def _member(listed: Members, node: str) -> Member:
    known = next((member for member in listed if member.id == node), None)
    if known is None:
        ids = [str(member.id) for member in listed]
        raise NotPossible(
            f"{node!r} is not a member{nearest(node, ids)}; members: {', '.join(ids)}"
        )
    return known


def _promoted(listed: Members, known: Member, heard: Mapping[NodeId, int]) -> Member:
    if known.role is MemberRole.VOTER:
        return known
    # the former voter is gone already: with this the replacement is over
    is_over = known.replaces not in {member.id for member in listed}
    replaces = "" if is_over else known.replaces
    incarnation = heard.get(known.id, 0)
    return replace(known, role=MemberRole.VOTER, incarnation=incarnation, replaces=replaces)


def _removed(listed: Members, gone: Member) -> Members:
    """The replacement of ``gone`` is over with this, unless its successor is still to be
    promoted."""
    staying = [member for member in listed if member is not gone]
    return tuple(
        replace(member, replaces="")
        if member.replaces == gone.id
        and (member.role is MemberRole.VOTER or gone.role is not MemberRole.VOTER)
        else member
        for member in staying
    )


def _readdressed(listed: Members, known: Member, request: AlterMemberRequest) -> Member:
    _check_free(listed, request)
    return replace(known, host=request.host, port=request.port)


def _check_free(listed: Members, request: AlterMemberRequest) -> None:
    """No other member has the address."""
    where = request.host, request.port
    for member in listed:
        if (member.host, member.port) == where and member.id != request.node_id:
            raise NotPossible(f"{member.id} is at {join_address(*where)} already")


def _added(listed: Members, request: AlterMemberRequest, known: Member | None) -> Members:
    if known is None:
        return (*listed, _new(listed, request))
    place = join_address(known.host, known.port)
    if (known.host, known.port) != (request.host, request.port):
        raise NotPossible(
            f"{known.id} is a member already, at {place}: remove it first, or choose another id"
        )
    if request.replaces and request.replaces != known.replaces:
        raise NotPossible(
            f"{known.id} is a member already, as {known.role.name.lower()}, and was not added to "
            f"replace {request.replaces}: choose another id"
        )
    is_observer = request.role is MemberRole.OBSERVER
    if not request.replaces and (known.role is MemberRole.OBSERVER) is not is_observer:
        raise NotPossible(f"{known.id} is a member already, as {known.role.name.lower()}")
    return listed


def _new(listed: Members, request: AlterMemberRequest) -> Member:
    role = request.role
    if request.replaces:
        role = _member(listed, request.replaces).role
        _check_no_other(listed)
    _check_free(listed, request)
    if role is not MemberRole.OBSERVER:
        role = MemberRole.LEARNER
    place = request.host, request.port
    return Member(request.node_id, *place, role, 0, request.rack, request.replaces)


def _check_no_other(listed: Members) -> None:
    """No replacement is under way."""
    for member in listed:
        if member.replaces:
            place = join_address(member.host, member.port)
            raise NotPossible(
                f"{member.id} is about to replace {member.replaces}: first finish that by "
                f"'dledger members replace {member.replaces} {member.id}={place}', or give it up "
                f"by 'dledger members remove {member.id}'"
            )
