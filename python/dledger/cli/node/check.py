"""``dledger serve --check``: what would keep a node from starting, all at once."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

import click

from dledger.config import GroupConfig, NodeConfig
from dledger.config.layers import Layers, SettingValue
from dledger.config.sections import as_toml
from dledger.errors import ConfigError, DLedgerError
from dledger.types import NodeId

LOCKS: Final = Path("/proc/locks")


def report(layers: Layers) -> int:
    """Print the settings with their origins, and the errors; the exit code.

    A node of several on one machine without a secret makes that of its Unix user, as a start does.
    """
    for line in effective(layers):
        click.echo(line)
    errors = list(errors_of(layers))
    for error in errors:
        click.echo(f"dledger: {error}", err=True)
    if not errors:
        click.echo("# nothing is wrong")
    return 1 if errors else 0


def effective(layers: Layers) -> Iterator[str]:
    """The settings as TOML, each with its origin as a comment."""
    for section, settings in groupby(layers.known.values(), lambda one: one.section):
        yield f"[{section}]"
        for one in settings:
            given = layers.given.get(one.name, SettingValue(one.default, "default"))
            if given.value is not None:
                yield f"{one.name} = {as_toml(given.value)}  # {given.source}"
        yield ""


def errors_of(layers: Layers) -> Iterator[str]:
    """Everything that is wrong."""
    try:
        group, node, addresses = layers.configs()
    except ConfigError:
        yield from layers.errors
        return
    runs = _is_locked(node.directory / "lock")
    checks: list[Callable[[], object]] = [
        lambda: _check_identity(node, addresses),
        lambda: _check_certificates(node),
        lambda: _check_metrics(node),
        lambda: _check_audit(group, node),
        lambda: check_directory(node.directory),
    ]
    if runs:
        click.echo(f"# a node runs on {node.directory}, so its port was not tried")
    else:
        checks.append(lambda: check_port(node.host, node.port))
        if node.metrics_port > 0:
            checks.append(lambda: check_port(node.metrics_host, node.metrics_port))
    for check in checks:
        try:
            check()
        except (DLedgerError, OSError) as error:
            yield str(error)


def _check_identity(node: NodeConfig, addresses: dict[NodeId, str]) -> None:
    from dledger.net.secret import read_secret
    from dledger.node.peers.membership_secret import with_secret

    if secret := with_secret(node, addresses).secret_file:
        read_secret(secret)


def _check_certificates(node: NodeConfig) -> None:
    from dledger.net.connections.tls import check_own_certificate, server_context

    if node.tls is not None:
        server_context(node.tls)
        check_own_certificate(node.tls, node.node_id)


def _check_metrics(node: NodeConfig) -> None:
    from dledger.node.peers.membership_secret import check_metrics

    check_metrics(node)


def _check_audit(group: GroupConfig, node: NodeConfig) -> None:
    from dledger.node.opening import check_audit_topic

    check_audit_topic(group, node)


def check_directory(directory: Path) -> None:
    """Whether a node may use it.

    Raises:
        OSError: it, or the one that it would be made in, is no directory that this user may write.
    """
    place = directory.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not stat.S_ISDIR(place.stat().st_mode):
        raise NotADirectoryError(f"directory {directory}: {place} is a file")
    if not os.access(place, os.W_OK | os.X_OK):
        raise PermissionError(f"directory {directory}: this user may not write in {place}")


def check_port(host: str, port: int) -> None:
    """Whether a node may listen there.

    Raises:
        OSError: another process does, or the host is none of this machine's.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found[:1]:
            with socket.socket(family, kind, protocol) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(address)
    except OSError as error:
        raise OSError(f"{host}:{port}: {error.strerror or error}") from None


def _is_locked(path: Path) -> bool:
    """Whether a process holds the lock, as the kernel lists it: taking it might keep a node out
    that starts now."""
    try:
        status, locks = path.stat(), LOCKS.read_text()
    except OSError:
        return False
    major, minor = os.major(status.st_dev), os.minor(status.st_dev)
    return f" {major:02x}:{minor:02x}:{status.st_ino} " in locks
