"""What each node of a group says of itself, asked of all at once, and what is wrong with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Final

from dledger.cli.common import group_client
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
        """By node, or by address where nobody tells its name, what it says; ``{"error": reason}``
        where it does not answer."""

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

    def wait_for_followers(self) -> None:
        """Look again at nodes that lack entries which a leader has committed: most get them at
        once."""
        until_s, goal = time.monotonic() + CATCH_UP_S, _committed(self.found)
        addresses = {name: address for address, name in self._names.items()}
        while (late := _late(self.found, goal)) and time.monotonic() < until_s:
            time.sleep(LOOK_S)
            for name in late:
                try:
                    self.found[name], _ = self._ask(addresses[name])
                except DLedgerError as error:
                    self.found[name] = {"error": f"does not answer: {error}"}
        for name in late:
            self.found[name]["behind"] = goal - self.found[name]["applied_index"]


def states_of(addresses: list[str], timeout_s: float) -> dict[str, State]:
    """All nodes that some addresses lead to, each with what it says, and with its `problems`."""
    answer_ms = int(1000 * min(ANSWER_S, timeout_s))
    limits = {"request_timeout_ms": answer_ms, "connect_timeout_ms": answer_ms}
    make = group_client(**limits)
    nodes = NodeStates(make)
    make(addresses[0]).close()  # so that settings that cannot be are an error of the command
    nodes.ask(addresses)
    nodes.wait_for_followers()
    return nodes.found


def _reason(address: str, error: DLedgerError) -> str:
    """Of a client's error: what it says of the one address that it asked."""
    _, found, rest = str(error).partition(f"({address}: ")
    return rest.partition(")")[0] if found else str(error)


def _committed(found: Mapping[str, State]) -> int:
    """The last entry that a leader has committed; -1 where none leads."""
    leaders = [state for state in found.values() if state.get("role") == "LEADER"]
    return max((state["committed_index"] for state in leaders), default=-1)


def _late(found: Mapping[str, State], goal: int) -> list[str]:
    return [name for name, state in found.items() if state.get("applied_index", goal) < goal]


def problems(found: Mapping[str, State]) -> dict[str, list[str]]:
    """By node, what is not well with it; nothing where all is."""
    answering = {name: state for name, state in found.items() if "error" not in state}
    leaders = sorted(name for name, state in answering.items() if state["role"] == "LEADER")
    groups = {state.get("group_id", "") for state in answering.values()}
    told: dict[str, list[str]] = {}
    for name, state in found.items():
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
            if member not in found
        ]
        if wrong:
            told[name] = wrong
    return told


def _of_node(name: str, state: State) -> list[str]:
    wrong = []
    if not state.get("admission", {}).get("admitted", True):
        wrong.append(f"is not admitted: dledger admit {name}")
    if state.get("catalog_lost"):
        wrong.append("has lost its catalog, and waits for a leader's")
    if "behind" in state:
        wrong.append(f"is {state['behind']:,} entries behind the leader")
    damaged = sum(each["last"] + 1 - each["first"] for each in state["repair"]["faulty"])
    if damaged:
        wrong.append(f"has {damaged:,} damaged entries")
    if state["disk_level"] != "OK":
        full = "is full: writes are refused" if state["disk_level"] == "FULL" else "is almost full"
        wrong.append(f"its disk {full}")
    return wrong
