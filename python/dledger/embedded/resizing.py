"""More or fewer nodes for a path's group, while programs use it."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field, replace

from dledger.client.catching_up import Moved, show_nothing
from dledger.embedded.group import EmbeddedGroup
from dledger.embedded.groupfile import GroupFile
from dledger.embedded.home import Home
from dledger.embedded.member_steps import (
    MakeClient,
    MemberSteps,
    Tell,
    group_client,
    say_nothing,
)
from dledger.embedded.settings import check_replicas
from dledger.embedded.start import drop_node, pick_addresses, retire_nodes, start_nodes
from dledger.errors import ConfigError, PathError
from dledger.types import NodeId


@dataclass(slots=True)
class Resize:
    """One `dledger up PATH --nodes N`. Each step is one that an interrupted run has done or not, so
    that the next run goes on.

    Args:
        path: a group's directory.
        nodes: as `EmbeddedGroup` takes ``replicas``.
        make_client: for the group.
        patience_s: how long a new node may get no further while it catches up.
        tell: a line about the progress.
        moved: the bytes that a new node has got.
    """

    path: str | os.PathLike[str]
    nodes: int
    make_client: MakeClient = group_client
    patience_s: float = 15.0
    tell: Tell = field(default=say_nothing)
    moved: Moved = field(default=show_nothing)

    def run(self) -> GroupFile:
        """The group, when it has so many nodes.

        Raises:
            ConfigError: it cannot have so many, or the leader refuses a step; the text says why.
            Unavailable: a node does not start or catch up, or another program changes the nodes.
            PathError: the directory cannot be used.
        """
        check_replicas(self.nodes)
        home = Home(self.path)
        home.create()
        with home.changing():
            EmbeddedGroup(self.path, None if home.read() else self.nodes)  # it is in use
            file = present_file(home)
            if file.named or file.has_moved:
                raise ConfigError(
                    f"{home}: the nodes of this group run elsewhere, at {file.bootstrap_servers}: "
                    "'dledger members add' and 'remove' change how many there are"
                )
            with home.lock():
                file = retire_nodes(home, present_file(home))
            with self.make_client(file, self.patience_s) as client:
                steps = MemberSteps(client, self.patience_s, self.tell, self.moved)
                for node in file.leaving:  # whatever the number is now: it may be out already
                    remove_node(home, steps, node)
                self._check_alone(home, steps)
                self._shrink(home, steps)
                self._complete(home, steps)
                self._grow(home, steps)
            return present_file(home)

    def _check_alone(self, home: Home, steps: MemberSteps) -> None:
        """Raises `ConfigError` for a group that is half way to other nodes, or too old."""
        now = steps.now()
        with home.lock():
            file = present_file(home)
            for node in file.elsewhere:
                if node not in now.roles:  # a move that was given up
                    file = home.write(file.without_node(node))
        if file.elsewhere:
            names = ", ".join(file.elsewhere)
            raise ConfigError(
                f"{home}: {names} of this group run elsewhere, since a 'dledger move' was begun: "
                "finish it, or remove them by 'dledger members remove'"
            )
        if len(file.local) != self.nodes:
            steps.check_version()

    def _shrink(self, home: Home, steps: MemberSteps) -> None:
        """One node after the other goes, the newest first; of those that do not vote yet, first."""
        while len((file := present_file(home)).local) > self.nodes:
            remove_node(home, steps, (*file.local, *file.joining)[-1])

    def _complete(self, home: Home, steps: MemberSteps) -> None:
        """Nodes that an interrupted run has begun with are voters."""
        for node in present_file(home).joining:
            self._join(home, steps, node)

    def _grow(self, home: Home, steps: MemberSteps) -> None:
        while len((file := present_file(home)).local) < self.nodes:
            node = _free_id(home, file)
            with home.lock():
                file = present_file(home)
                (address,) = pick_addresses(file.settings, [node], file.addresses.values()).values()
                start_nodes(home, home.write(file.with_node(node, address)), [node], alone=True)
            self._join(home, steps, node)

    def _join(self, home: Home, steps: MemberSteps, node: NodeId) -> None:
        steps.join(node, present_file(home).addresses[node])
        with home.lock():
            home.write(present_file(home).joined(node))


def remove_node(home: Home, steps: MemberSteps, node: NodeId) -> GroupFile:
    """Take a node of the directory out of the group, and delete its files."""
    with home.lock():
        file = present_file(home)
        if node not in file.leaving:
            home.write(replace(file, leaving=(*file.leaving, node)))
    steps.leave(node)
    with home.lock():
        return drop_node(home, present_file(home), node)


def _free_id(home: Home, file: GroupFile) -> NodeId:
    """The first that neither a member nor a directory has."""
    for number in itertools.count():
        node = NodeId(f"n{number}")
        if node not in file.members and not home.node_directory(node).exists():
            return node
    raise AssertionError


def present_file(home: Home) -> GroupFile:
    """Raises `PathError` where the group is gone."""
    file = home.read()
    if file is None:
        raise PathError(f"{home}: group.json is gone: another program has deleted the group")
    return file
