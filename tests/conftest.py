"""What runs tests that are coroutines; the in-memory group, in place of a client's connections."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

from dledger.net.loop import loop_factory
from tests import spark_jvm
from verification.disk import coverage

# a slow moment of the machine is no failure
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
_numbers = itertools.count(1)


def pytest_configure() -> None:
    os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_jvm.options())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="golden scripts are given what they print now"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs on a loop of its own, of the kind that a node has, or made by
    its fixture ``new_loop``; what is cancelled and closed at its end is as with `asyncio.run`."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    new_loop = pyfuncitem.funcargs.get("new_loop") or loop_factory()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(entered(test, dict(pyfuncitem.funcargs)))
    return True


async def entered(test: Callable[..., Coroutine[Any, Any, None]], given: dict[str, Any]) -> None:
    """Runs the test, inside those of its fixtures that are asynchronous contexts."""
    async with AsyncExitStack() as stack:
        for name, value in given.items():
            if isinstance(value, AbstractAsyncContextManager):
                given[name] = await stack.enter_async_context(value)
        await test(**{name: given[name] for name in inspect.signature(test).parameters})


@pytest.fixture
def new_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """For coroutines that run as a program with a client runs them: on asyncio's own loop."""
    return asyncio.new_event_loop


@pytest.fixture(autouse=True)
def nothing_is_durable_without_a_sync() -> Iterator[None]:
    """Of every store that a test opens on a disk in memory; a thread under test may have swallowed
    the error."""
    yield
    found, coverage.FOUND[:] = coverage.FOUND[:], []
    assert found == []


@pytest.fixture(scope="session", autouse=True)
def user_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What dledger keeps for a Unix user is kept elsewhere in tests, for all processes that they
    start."""
    place = tmp_path_factory.mktemp("user") / "dledger"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLEDGER_USER_DIRECTORY", str(place))
        yield place


@pytest.fixture
def issue(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """``issue(*names, authority=None, nodes=..., users=())``: the three settings of TLS, for a
    certificate with these names (127.0.0.1 without any), for these nodes and users, of
    ``authority``, or of one that nobody else knows; ``dates``: its ``not_before`` and
    ``not_after``."""
    import trustme  # loads a large library, for few tests
    from cryptography.x509 import UniformResourceIdentifier as uri

    def make(
        *names: str,
        authority: Any = None,
        nodes: tuple[str, ...] = ("n0", "n1", "n2"),
        users: tuple[str, ...] = (),
        **dates: Any,
    ) -> dict[str, str]:
        authority = authority or trustme.CA()
        with pytest.MonkeyPatch.context() as patch:
            known = trustme._identity_string_to_x509
            patch.setattr(
                trustme,
                "_identity_string_to_x509",
                lambda name: uri(name) if "://" in name else known(name),
            )
            own = authority.issue_cert(
                *(names or ("127.0.0.1",)),
                *(f"dledger://node/{node}" for node in nodes),
                *(f"dledger://client/{user}" for user in users),
                **dates,
            )
        parts = {
            "tls_ca": authority.cert_pem.bytes(),
            "tls_certificate": b"".join(part.bytes() for part in own.cert_chain_pems),
            "tls_key": own.private_key_pem.bytes(),
        }
        directory = tmp_path / f"certificates-{next(_numbers)}"
        directory.mkdir()
        for name, pem in parts.items():
            (directory / name).write_bytes(pem)
        return {name: str(directory / name) for name in parts}

    return make


@pytest.fixture
def make_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Makes in-memory groups; their ``address`` is what goes into dledger.bootstrap.servers."""
    from tests.datasource import fake_log

    monkeypatch.setattr(
        "dledger.datasource.table.log.shared_client",
        lambda servers, **settings: fake_log.GROUPS[servers],
    )
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield lambda: fake_log.FakeGroup(f"fake:{next(_numbers)}")
    fake_log.GROUPS.clear()


@pytest.fixture
def group(make_group: Callable[[], Any]) -> Any:
    """One in-memory group."""
    return make_group()


@pytest.fixture
def stores() -> ModuleType:
    """What makes RocketMQ's and DLedger's stores: tests/rocketmq/files/store_maker.py."""
    from tests.rocketmq.files import store_maker

    return store_maker
