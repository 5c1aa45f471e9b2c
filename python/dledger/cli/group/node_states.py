"""What each node of a group says of itself, asked of all at once, and what is wrong with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dledger.cli.common import find_addresses, group_client, is_path
from dledger.errors import DLedgerError
from dledger.types import NodeId

if TYPE_CHECKING:
    from dledger.client import Client

ANSWER_S: Final = 2.0
"""For one node, from its connection to its answer."""
CATCH_UP_S: Final = 1.0
"""A node that is not caught up is looked at again for so long: under load every follower is a few
entries behind at any time."""
LOOK_S: Final = 0.1
MOST: Final = 32
"""Nodes that are asked at a time."""

State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GroupLook:
    """A group as one look finds it."""

    states: dict[str, State]
    """By node, or by address where nobody tells its name, what it says; ``{"error": reason}``
    where it does not answer."""
    addresses: dict[str, str]
    """By node, as the nodes that answer and the group's file tell."""
    processes: dict[str, int | None]
    """Of a path group: by node that runs in its directory, the process."""


class NodeStates:
    """The nodes behind some addresses, and those that these name.

    Args:
        clients: makes a client for one address, which asks nobody before it is used.
    """

    def __init__(self, clients: Callable[[str], Client]) -> None:
        self._clients = clients
        self._asked: set[str] = set()
        self._names: dict[str, str] = {}
        """Names of nodes by address, as other nodes tell them."""
        self.found: dict[str, State] = {}
        """As `GroupLook.states`."""

    def ask(self, addresses: list[str]) -> None:
        """Ask all of them at once, and the members that they name."""
        with ThreadPoolExecutor(MOST, "status") as pool:
            running = {pool.submit(self._ask, address): address for address in self._new(addresses)}
            errors: dict[str, str] = {}
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for one in done:
                    address = running.pop(one)
                    self._heard(address, one, errors)
                    running |= {pool.submit(self._ask, new): new for new in self._new(self._names)}
        for address, reason in errors.items():
            self.found.setdefault(self._names.get(address, address), {"error": reason})

    def _new(self, addresses: Mapping[str, str] | list[str]) -> list[str]:
        new = [address for address in addresses if address not in self._asked]
        self._asked.update(new)
        return new

    def _ask(self, address: str) -> tuple[State, dict[NodeId, str]]:
        with self._clients(address) as client:
            return client.node_status()

    def _heard(self, address: str, one: Future[Any], errors: dict[str, str]) -> None:
        try:
            state, members = one.result()
        except DLedgerError as error:
            errors[address] = f"does not answer: {_reason(address, error)}"
            return
        self._names |= {where: name for name, where in members.items()}
        self._names[address] = state["node_id"]
        self.found[state["node_id"]] = state

    @property
    def addresses(self) -> dict[str, str]:
        """By node, as far as an address is known."""
        return {name: address for address, name in self._names.items()}

    def wait_for_followers(self) -> None:
        """Look again at nodes that lack entries which a leader has committed: most get them at
        once."""
        until_s, goal = time.monotonic() + CATCH_UP_S, _committed(self.found)
        addresses = self.addresses
        while (late := _late(self.found, goal)) and time.monotonic() < until_s:
            time.sleep(LOOK_S)
            for name in late:
                try:
                    self.found[name], _ = self._ask(addresses[name])
                except DLedgerError as error:
                    self.found[name] = {"error": f"does not answer: {error}"}
        for name in late:
            self.found[name]["behind"] = goal - self.found[name]["applied_index"]


def look_at(target: str, timeout_s: float) -> GroupLook:
    """All nodes that ``--bootstrap`` leads to, each with what it says. Needs no leader, and starts
    nothing.

    Raises:
        PathError: the directory has no group.
    """
    if not is_path(target):
        nodes = _asked(find_addresses(target).split(","), timeout_s)
        return GroupLook(nodes.found, nodes.addresses, {})
    from dledger.embedded.group import read_group

    home, file = read_group(target)
    here = file.addresses if file.named else file.local
    local = {node: home.node(node) for node in here}
    processes = {
        str(node): state.process.pid if state.running and state.process else None
        for node, state in local.items()
    }
    # of a group of which other nodes run elsewhere, this directory says nothing about those
    ends = () if file.named else tuple(node for node, pid in processes.items() if pid is None)
    states: dict[str, State] = {node: {"error": "does not run"} for node in ends}
    addresses = {str(node): where for node, where in file.addresses.items()}
    if asked := [where for node, where in addresses.items() if node not in ends]:
        nodes = _asked(asked, timeout_s)
        states, addresses = nodes.found | states, addresses | nodes.addresses
    return GroupLook(states, addresses, processes)


def _asked(addresses: list[str], timeout_s: float) -> NodeStates:
    answer_ms = int(1000 * min(ANSWER_S, timeout_s))
    limits = {"request_timeout_ms": answer_ms, "connect_timeout_ms": answer_ms}
    make = group_client(**limits)
    nodes = NodeStates(make)
    make(addresses[0]).close()  # so that settings that cannot be are an error of the command
    nodes.ask(addresses)
    nodes.wait_for_followers()
    return nodes


def _reason(address: str, error: DLedgerError) -> str:
    """Of a client's error: what it says of the one address that it asked, in parentheses, which the
    reason may have itself."""
    _, found, rest = str(error).partition(f"({address}: ")
    depth = 1
    for at, letter in enumerate(rest):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if not depth:
            return rest[:at]
    return rest if found else str(error)


def _committed(found: Mapping[str, State]) -> int:
    """The last entry that a leader has committed; -1 where none leads."""
    leaders = [state for state in found.values() if state.get("role") == "LEADER"]
    return max((state.get("committed_index", -1) for state in leaders), default=-1)


def _late(found: Mapping[str, State], goal: int) -> list[str]:
    return [name for name, state in found.items() if state.get("applied_index", goal) < goal]


def members_now(found: Mapping[str, State]) -> frozenset[str] | None:
    """The members by the word of the leader with the highest term; None where nobody leads."""
    leading = [state for state in found.values() if state.get("role") == "LEADER"]
    newest = max(leading, key=lambda state: state.get("term", -1), default=None)
    return None if newest is None else frozenset(newest["members"])


def strangers(found: Mapping[str, State]) -> dict[str, str]:
    """By address that was asked and is no member's, as a leader says, why nothing came from it."""
    members = members_now(found)
    gone = {} if members is None else {one: found[one] for one in found if one not in members}
    return {one: state["error"] for one, state in gone.items() if "error" in state}


def problems(found: Mapping[str, State]) -> dict[str, list[str]]:
    """By node, what is not well with it; nothing where all is. Of nodes that are members no more,
    as a leader says, nothing is wanted."""
    answering = {name: state for name, state in found.items() if "error" not in state}
    leaders = sorted(name for name, state in answering.items() if state["role"] == "LEADER")
    groups = {state.get("group_id", "") for state in answering.values()}
    told: dict[str, list[str]] = {}
    current = members_now(found)
    for name, state in found.items():
        if current is not None and name not in current and len(groups) < 2:
            continue
        if "error" in state:
            told[name] = [state["error"]]
            continue
        wrong = _of_node(name, state)
        if not state["leader_id"]:
            wrong.append("knows no leader")
        if name in leaders and len(leaders) > 1:
            wrong.append(f"leads, and so does {', '.join(one for one in leaders if one != name)}")
        if len(groups) > 1:
            wrong.append(f"is of group {state.get('group_id') or 'without an id'}; others are not")
        wrong += [
            f"names {member} as a member, which nobody has an address of"
            for member in state["members"]
            if member not in found and (current is None or member in current)
        ]
        if wrong:
            told[name] = wrong
    return told


def _of_node(name: str, state: State) -> list[str]:
    wrong = []
    admission = state.get("admission", {})
    if missing := admission.get("missing"):
        wrong.append(f"has not heard of {', '.join(missing)}: a group begins when all members run")
    elif not admission.get("admitted", True):
        wrong.append(f"is not admitted: dledger admit {name}")
    if state.get("catalog_lost"):
        wrong.append("has lost its catalog, and waits for a leader's")
    if "behind" in state:
        wrong.append(f"is {state['behind']:,} entries behind the leader")
    if "repair" not in state:
        return [*wrong, "says no more to this user, whom no rule lets describe the cluster"]
    damaged = sum(each["last"] + 1 - each["first"] for each in state["repair"]["faulty"])
    if damaged:
        wrong.append(f"has {damaged:,} damaged entries")
    if state["disk_level"] != "OK":
        wrong.append(_of_disk(state))
    linked = state.get("peers_connected", {})
    wrong += [
        f"has no link to {peer}: {reason}"
        for peer, reason in sorted(state.get("refused_peers", {}).items())
        if not linked.get(peer, True)
    ]
    return wrong


def _of_disk(state: State) -> str:
    """What is wrong with a disk, and by which limit; a node of 0.1.0 tells the level only."""
    is_full = state["disk_level"] == "FULL"
    text = "its disk is full: writes are refused" if is_full else "its disk is almost full"
    if not (disk := state.get("disk")):
        return text
    size, free = disk["size_bytes"], disk["free_bytes"]
    limit = f"disk_{'full' if is_full else 'warn'}_ratio"
    limits = f"{limit}={disk[limit.removeprefix('disk_')]}"
    if is_full:
        limits += f", disk_reserve_bytes={disk['reserve_bytes']:,}"
    share = 1 - free / size if size else 1.0
    return f"{text}; of {disk['directory']} {share:.0%} are used, {free:,} bytes free ({limits})"
