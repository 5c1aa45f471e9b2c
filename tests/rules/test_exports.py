"""The public names: examples, docs and other programs rely on them."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import dledger
from dledger import errors
from dledger.cli.main import main

TOP = Path(__file__).resolve().parents[2]
GROUP = ("bootstrap_servers", "leader", "nodes", "kill", "restart", "stop", "__enter__", "__exit__")
CLIENT = (
    "create_topic", "delete_topic", "topics", "append", "append_batch", "producer", "transaction",
    "read", "table", "scan", "begin_offsets", "end_offsets", "offsets_for_times", "commit_offsets",
    "group", "status",
)  # fmt: skip
USED = {
    "serve", "status", "topics", "append", "tail", "groups", "transfer", "verify", "dump", "bench",
}  # fmt: skip


def test_package_exports_exactly_its_public_names() -> None:
    """Whatever ``__all__`` says is there, and nothing is there that it does not say."""
    for name in dledger.__all__:
        assert getattr(dledger, name) is not None
    assert {"AsyncClient", "Client", "EmbeddedGroup"} <= set(dledger.__all__)
    assert list(dledger.__all__) == sorted(dledger.__all__)


@pytest.mark.parametrize("name", GROUP)
def test_embedded_group_has(name: str) -> None:
    assert hasattr(dledger.EmbeddedGroup, name)


@pytest.mark.parametrize("name", CLIENT)
def test_both_clients_have(name: str) -> None:
    """``AsyncClient`` has the same names as ``Client``, with the same parameters."""
    blocking, asynchronous = getattr(dledger.Client, name), getattr(dledger.AsyncClient, name)
    assert list(inspect.signature(blocking).parameters) == list(
        inspect.signature(asynchronous).parameters
    )


def test_client_and_group_take_the_documented_arguments() -> None:
    group = inspect.signature(dledger.EmbeddedGroup).parameters
    assert list(group)[:2] == ["path", "replicas"]
    append = inspect.signature(dledger.Client.append).parameters
    assert list(append)[1:3] == ["topic", "values"]
    assert {"keys", "partition", "headers", "timestamps"} <= set(append)
    assert inspect.signature(dledger.Client.create_topic).parameters["partitions"].default == 1
    read = inspect.signature(dledger.Client.read).parameters
    assert list(read)[1:5] == ["topic", "partition", "start", "end"]


def test_command_has_its_commands() -> None:
    """Each can be loaded, and says what it does."""
    assert set(main.commands) >= USED
    for command in main.commands.values():
        assert command.help


def test_every_error_says_whether_it_is_definite() -> None:
    """One root; each error is definite or not, retriable or not, and stands in the tree of the
    module's docstring."""
    classes = filter(inspect.isclass, vars(errors).values())
    kinds = [kind for kind in classes if issubclass(kind, errors.DLedgerError)]
    assert len(kinds) > 20
    for kind in kinds:
        assert isinstance(kind.definite, bool)
        assert isinstance(kind.retriable, bool)
        assert kind.__name__ in (errors.__doc__ or "")
        assert kind.__doc__


def test_spark_finds_the_name() -> None:
    """Spark asks a class named ``DefaultSource`` in a package named ``pyspark_*`` for its name."""
    from pyspark_dledger import DefaultSource

    assert DefaultSource.name() == "dledger"


def test_make_has_its_targets() -> None:
    makefile = (TOP / "Makefile").read_text()
    for target in ("demo", "test", "check", "bench"):
        assert f"\n{target}: " in makefile
