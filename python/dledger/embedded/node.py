"""One node of a group whose other nodes run elsewhere, run by the application that owns the log."""

from __future__ import annotations

import os
from typing import Any

from dledger import forks
from dledger.config import parse_peers
from dledger.embedded.group import describe_nodes
from dledger.embedded.groupfile import User
from dledger.embedded.home import Home
from dledger.embedded.probe import ask_to_lead, wait_for_leader
from dledger.embedded.process import ProcessId, application_pid
from dledger.embedded.settings import check_settings, tls_of
from dledger.embedded.start import Wish, join_group, stop_nodes
from dledger.errors import ConfigError, Unavailable
from dledger.types import NodeId, Role


class EmbeddedNode:
    """This application's node: the group's preferred leader, as a RocketMQ broker embeds DLedger.

    The other nodes run where ``peers`` says, by ``dledger serve`` or as another application's
    embedded node. The node is a process of its own, found again through the directory like those of
    `EmbeddedGroup`.

    Args:
        path: a directory for this node's files, made when missing.
        peers: ``n0-host:port;n1-host:port;…``, the same on every node.
        self_id: which of them this is.
        settings: fields of `GroupConfig` and `NodeConfig` by name; ``group`` (``default``) must be
            that of the others. It listens on its own address's host, unless ``host`` says
            otherwise.

    Raises:
        ConfigError, UnknownOption: ``self_id`` is not in ``peers``, or a setting cannot be.
        PathError: the directory cannot be used, or holds something else.
        PortInUse: another process listens on this node's port.
        WrongGroup: the directory belongs to another group.
    """

    def __init__(
        self, path: str | os.PathLike[str], peers: str, self_id: str, **settings: Any
    ) -> None:
        addresses = parse_peers(peers)
        if self_id not in addresses:
            raise ConfigError(
                f"self id {self_id!r} is not one of the peers: {', '.join(addresses)}"
            )
        chosen = {"preferred_leaders": [self_id], **settings}
        group = str(chosen.pop("group", "default"))
        # advertise_host is what the peers say; host may stand alone here.
        check_settings({**chosen, "advertise_host": addresses[NodeId(self_id)].rpartition(":")[0]})
        self.node_id = NodeId(self_id)
        self._home = Home(path)
        self._born = forks.generation
        self._wish = Wish(
            User(ProcessId.of(application_pid()), holds=True),
            chosen,
            peers=addresses,
            local=self.node_id,
            group=group,
        )
        self.start()

    def start(self) -> None:
        """Start the node where it does not run; returns when it serves, which needs no other node.

        Raises:
            ForkedClient: it is the node of the process that forked this one.
        """
        forks.check_born_here(self._born, repr(self))
        join_group(self._home, self._wish)

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,…`` of all nodes."""
        return ",".join((self._wish.peers or {}).values())

    @property
    def role(self) -> Role | None:
        """The node's role now; None when it does not answer."""
        home, file = self._home, self._home.read()
        return describe_nodes(home, file)[self.node_id].role if file else None

    def wait_for_leader(self, timeout_s: float = 30.0) -> NodeId:
        """The leader as soon as there is one; asks another one once to hand over to this node.

        Raises:
            Unavailable: no quorum of the peers runs by then.
        """
        peers, group = self._wish.peers or {}, self._wish.group or ""
        tls = tls_of(self._wish.settings)
        leader = wait_for_leader(peers, group, timeout_s, tls)
        if leader is None:
            raise Unavailable(
                f"no leader within {timeout_s:g} s; start the other nodes of "
                f"{', '.join(peers.values())}"
            )
        if leader != self.node_id and ask_to_lead(peers[leader], group, self.node_id, tls):
            return self.node_id
        return leader

    def stop(self) -> None:
        """End the node gracefully: it hands leadership over and drains. In a forked child nothing:
        the node is the parent's."""
        if self._born != forks.generation:
            return
        with self._home.lock():
            stop_nodes(self._home, [self.node_id])

    def __enter__(self) -> EmbeddedNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"EmbeddedNode({str(self._home)!r})"
