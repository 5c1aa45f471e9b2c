"""What is true of a core after each of its steps."""

from __future__ import annotations

from dledger.raft.member_state import Machine
from dledger.raft.roles.entry_handler import Follower
from dledger.raft.roles.leader import Leader
from dledger.types import Role


def check_promises(machine: Machine) -> None:
    """Raise AssertionError if one is broken."""
    log, acting = machine.log, machine.acting
    log.check()
    assert (machine.role is Role.LEADER) == (machine.leader_id == machine.me)
    assert machine.role is not Role.FOLLOWER or machine.leader_id is not None
    assert log.end.position.term <= machine.term, f"{log.end} in term {machine.term}"
    if isinstance(acting, Leader):
        assert machine.voted_for == machine.me
        for dispatcher in acting.dispatchers.values():
            assert dispatcher.watermark <= log.end_index, (
                f"{dispatcher.peer} has more than its leader"
            )
    if isinstance(acting, Follower):
        assert log.committed_index <= acting.matched_index <= log.end_index
