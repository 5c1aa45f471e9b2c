"""A path's group moves to nodes that run elsewhere, while programs use it. Its directory then only
says where it is."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Final

from dledger.client.catching_up import Moved, show_nothing
from dledger.config import EMBEDDED_DEFAULTS, GroupConfig, format_peers
from dledger.embedded.group import EmbeddedGroup
from dledger.embedded.groupfile import GroupFile
from dledger.embedded.home import Home
from dledger.embedded.member_steps import (
    OBSERVER,
    MakeClient,
    MembersNow,
    MemberSteps,
    Tell,
    group_client,
    say_nothing,
)
from dledger.embedded.resizing import present_file, remove_node
from dledger.embedded.start import retire_nodes
from dledger.errors import ConfigError, DLedgerError, PathError
from dledger.node.peers.membership_secret import on_loopback
from dledger.types import NodeId

PROBE_S: Final = 3.0
"""For a target to say what it is."""
_OF_A_PATH: Final = {"members", "group", "preferred_leaders", "founding_version"}
"""Settings of a group that a node is told otherwise, or not at all."""


@dataclass(slots=True)
class Move:
    """One `dledger move PATH --to SERVERS`. Each step is one that an interrupted run has done or
    not, so that the next run goes on.

    Args:
        path: the group's directory; it may have moved before.
        targets: the nodes that are to be the group, ``host:port`` each.
        make_client: for the group.
        patience_s: how long a target may get no further while it catches up.
        tell: a line about the progress.
        moved: the bytes that a new node has got.
    """

    path: str | os.PathLike[str]
    targets: Mapping[NodeId, str]
    make_client: MakeClient = group_client
    patience_s: float = 15.0
    tell: Tell = field(default=say_nothing)
    moved: Moved = field(default=show_nothing)

    def run(self) -> GroupFile:
        """The group, when its members are the targets and nothing of it runs in the path.

        Raises:
            ConfigError: a target cannot be a member, or the leader refuses a step; the text says
                why. Before the first step all targets are looked at.
            Unavailable: a target does not answer or catch up, or another program changes the nodes.
            PathError: there is no group in the directory.
        """
        home = Home(self.path)
        with _changing(home):
            EmbeddedGroup(self.path)  # it is in use
            with home.lock():
                file = retire_nodes(home, present_file(home))
            with self.make_client(file, self.patience_s) as client:
                steps = MemberSteps(client, self.patience_s, self.tell, self.moved)
                for node in file.leaving:
                    remove_node(home, steps, node)
                steps.check_version()
                self._check(home, steps.now())
                for node, address in self.targets.items():
                    steps.join(node, address, partial(self._note, home, node))
                steps.lead(tuple(self.targets))
                self._remove_others(home, steps)
            return self._finish(home)

    def serve_commands(self, directory: str = "DIRECTORY") -> list[str]:
        """How each target is started, on an empty directory; starts the path's nodes, whose
        addresses are in it."""
        home = Home(self.path)
        with _changing(home):
            EmbeddedGroup(self.path)
            return [
                serve_command(home, present_file(home), {node: address}, directory)
                for node, address in self.targets.items()
            ]

    def _check(self, home: Home, now: MembersNow) -> None:
        """Whether each target may become a member; nothing was changed so far."""
        file = present_file(home)
        if len(self.targets) % 2 == 0:
            self.tell(
                f"{len(self.targets)} nodes survive no more failures than {len(self.targets) - 1}"
            )
        for node, address in self.targets.items():
            known = now.addresses.get(node)
            if node in now.roles and known != address:
                raise ConfigError(
                    f"{node} is a node of the group already, at {known}: give the new one another "
                    f"id, as in {_free_ids(now, len(self.targets))}"
                )
        here = [file.addresses[node] for node in file.local]
        for address in self.targets.values():
            if here and not on_loopback(address) and all(map(on_loopback, here)):
                raise ConfigError(
                    f"{address} is on another machine, which cannot reach the nodes of {home} at "
                    f"{here[0]}: 'dledger stop {home}', then 'dledger up {home} --advertise-host "
                    "HOST' with this machine's name"
                )
        wrong = [
            reason
            for node, address in self.targets.items()
            if node not in now.roles and (reason := self._obstacle(file, node, address, now))
        ]
        if wrong:
            targets = format_peers(dict(self.targets))
            raise ConfigError(
                f"{'; '.join(wrong)}. Nothing was changed. 'dledger move {home} --to "
                f"{shlex.quote(targets)} --print-serve' prints the commands that start the nodes"
            )

    def _obstacle(self, file: GroupFile, node: NodeId, address: str, now: MembersNow) -> str:
        """Why a node cannot join; empty where it can."""
        there = replace(file, members=(node,), addresses={node: address})
        try:
            with self.make_client(there, PROBE_S) as client:
                said, _ = client.node_status()
        except DLedgerError as error:
            return f"{node} at {address}: {error}"
        if (other := said["node_id"]) != node:
            return f"the node at {address} is {other}, not {node}"
        if said.get("member_roles") or said.get("end_index", -1) >= 0:
            return (
                f"{node} at {address} waits for no group that takes it: it has one, or is to found "
                "one; start it with --join on an empty directory"
            )
        if said.get("disk_level") == "FULL":
            return f"the disk of {node} at {address} is full"
        least, most = said.get("group_version", {}).get("supported", (now.version, now.version))
        if not least <= now.version <= most:
            return (
                f"{node} at {address} supports the group versions {least} to {most}, and the group "
                f"has {now.version}: install this release there"
            )
        return ""

    def _note(self, home: Home, node: NodeId) -> None:
        """Programs that open the path from now on know this target, too: it may lead, and the
        path's nodes may be gone."""
        with home.lock():
            file = present_file(home)
            noted = file.with_member(node, self.targets[node])
            if noted != file:
                home.write(noted)

    def _remove_others(self, home: Home, steps: MemberSteps) -> None:
        """One after the other. An observer elsewhere stays."""
        local, now = present_file(home).local, steps.now()
        for node, role in now.roles.items():
            if node in self.targets or (role == OBSERVER and node not in local):
                continue
            if node in local:
                remove_node(home, steps, node)
            else:
                steps.leave(node)

    def _finish(self, home: Home) -> GroupFile:
        """The directory says where the group is."""
        with home.lock():
            file = present_file(home)
            return home.write(
                replace(
                    file,
                    members=tuple(self.targets),
                    addresses=dict(self.targets),
                    local=(),
                    founders=file.founding,
                )
            )


def _changing(home: Home) -> Any:
    file = home.read()
    if file is None:
        raise PathError(f"{home}: there is no group in this directory (no group.json)")
    if file.named:
        raise ConfigError(
            f"{home} has one node, {file.local[0]}, of a group whose others run elsewhere: "
            "'dledger members add' and 'remove' change its members"
        )
    return home.changing()


def _free_ids(now: MembersNow, count: int) -> str:
    """An example of ids that no member has."""
    numbers = [int(node[1:]) for node in now.roles if node[:1] == "n" and node[1:].isdecimal()]
    first = max(numbers, default=-1) + 1
    return ";".join(f"n{first + number}-HOST:PORT" for number in range(count))


def serve_command(home: Home, file: GroupFile, target: Mapping[NodeId, str], directory: str) -> str:
    """The command that starts a node which joins a path's group, with its secret and settings."""
    ((node, _),) = target.items()
    settings = EMBEDDED_DEFAULTS | file.settings
    defaults = {one.name: one.default for one in fields(GroupConfig)}
    given = {
        name: value
        for name, value in settings.items()
        if name in defaults.keys() - _OF_A_PATH and value != defaults[name]
    }
    words = [
        *("dledger", "serve", "--join", "--self-id", node),
        *("--peers", format_peers({**file.addresses, **target})),
        *("--group", file.group, "--dir", directory),
        *("--secret-file", str(home.secret_file), "--set", "clients_prove=true"),
    ]
    for name, value in given.items():
        words += ["--set", f"{name}={value}"]
    return shlex.join(words)
