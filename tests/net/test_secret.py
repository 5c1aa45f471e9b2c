"""The secret that programs share: whose file is taken, and which proofs."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dledger.errors import AccessDenied, ConfigError
from dledger.net.connections.handshake import Greeting
from dledger.net.secret import Secret, Side, create_secret, read_secret
from dledger.net.user_directory import VARIABLE, user_directory, user_secret
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest, HelloResponse
from dledger.types import NodeId

HELLO = HelloRequest(group="g", node_id="n1", group_id="id", nonce=b"1" * 16)
ANSWER = HelloResponse(
    code=Code.SUCCESS, group="g", node_id=NodeId("n0"), group_id="id", nonce=b"2" * 16
)
KEY = Secret(b"k" * 32)


def test_a_new_secret_is_readable_for_its_owner_alone_and_no_two_are_equal(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    create_secret(one)
    create_secret(other)
    assert stat.S_IMODE(one.stat().st_mode) == 0o600
    assert one.read_bytes() != other.read_bytes()
    assert len(one.read_bytes().strip()) == 64
    assert sorted(tmp_path.iterdir()) == [one, other]
    proof = read_secret(one).proof(Side.OPENS, HELLO, ANSWER)
    for path in (one, other):
        assert read_secret(path).is_proof(proof, Side.OPENS, HELLO, ANSWER) is (path == one)


def test_a_secret_is_never_written_over(tmp_path: Path) -> None:
    create_secret(tmp_path / "a")
    before = (tmp_path / "a").read_bytes()
    with pytest.raises(FileExistsError):
        create_secret(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def private(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


NO_SECRETS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (
        lambda path: path,
        "No such file or directory: make one with 'dledger secret create",
    ),
    "empty": (lambda path: private(path, b""), "is empty"),
    "blank": (lambda path: private(path, b" \n"), "is empty"),
    "short": (lambda path: private(path, b"x" * 31), "has 31 bytes; a secret has 32"),
    "long": (lambda path: private(path, b"x" * 5000), "has 4097 bytes"),
    "for all": (lambda path: private(path, b"x" * 32, 0o604), r"mode 0604.*'chmod 600 "),
    "for the group": (lambda path: private(path, b"x" * 32, 0o640), r"mode 0640.*'chmod 600 "),
    "a directory": (lambda path: path.mkdir(), "is no regular file"),
    "a pipe": (lambda path: os.mkfifo(path, 0o600), "is no regular file"),
}


@pytest.mark.parametrize(("make", "said"), NO_SECRETS.values(), ids=NO_SECRETS)
def test_a_file_that_holds_no_secret_is_refused_with_the_way_out(
    tmp_path: Path, make: Callable[[Path], object], said: str
) -> None:
    make(tmp_path / "secret")
    with pytest.raises(ConfigError, match=said):
        read_secret(tmp_path / "secret")


def test_a_file_or_link_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, own = private(tmp_path / "secret", b"x" * 32), os.geteuid()
    (tmp_path / "link").symlink_to(path)
    assert read_secret(tmp_path / "link")
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    said = f"belongs to user {own}, not to user {own + 1}.*chown {own + 1} "
    with pytest.raises(ConfigError, match=said):
        read_secret(path)
    if own:  # a link of root's is no stranger's
        with pytest.raises(ConfigError, match=f"symbolic link of user {own}"):
            read_secret(tmp_path / "link")


def test_a_link_that_another_user_may_turn_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = private(tmp_path / "secret", b"x" * 32)
    link = tmp_path / "link"
    link.symlink_to(path)
    real = Path.lstat

    def lstat(self: Path) -> os.stat_result:
        found = list(real(self))
        found[4] = 12345
        return os.stat_result(found)

    monkeypatch.setattr(Path, "lstat", lstat)
    with pytest.raises(ConfigError, match="symbolic link of user 12345"):
        read_secret(link)


OTHERS = {
    "another nonce of the opener": (replace(HELLO, nonce=b"3" * 16), ANSWER),
    "another nonce of the acceptor": (HELLO, replace(ANSWER, nonce=b"3" * 16)),
    "another node that opens": (replace(HELLO, node_id="n2"), ANSWER),
    "a client in place of a node": (replace(HELLO, node_id=""), ANSWER),
    "another node that accepts": (HELLO, replace(ANSWER, node_id=NodeId("n2"))),
    "another group": (replace(HELLO, group="h"), ANSWER),
    "another founding": (HELLO, replace(ANSWER, group_id="other")),
    "another protocol": (replace(HELLO, version=3), ANSWER),
    "a border moved": (replace(HELLO, group="gn", node_id="1"), ANSWER),
}


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("side", Side)
def test_a_proof_is_good_for_nothing_else(what: str, side: Side) -> None:
    proof = KEY.proof(side, HELLO, ANSWER)
    assert KEY.is_proof(proof, side, HELLO, ANSWER)
    assert not KEY.is_proof(proof, side, *OTHERS[what])
    assert not Secret(b"j" * 32).is_proof(proof, side, HELLO, ANSWER)
    assert not KEY.is_proof(b"", side, HELLO, ANSWER)


def test_a_proof_that_is_sent_back_proves_nothing() -> None:
    assert not KEY.is_proof(KEY.proof(Side.ACCEPTS, HELLO, ANSWER), Side.OPENS, HELLO, ANSWER)


def challenge(greeting: Greeting, key: Secret = KEY) -> HelloResponse:
    answer = replace(ANSWER, proof_wanted=True)
    return replace(answer, proof=key.proof(Side.ACCEPTS, greeting.hello, answer))


@pytest.mark.parametrize("node_id", ["n1", ""])
def test_both_sides_prove_before_either_goes_on(node_id: str) -> None:
    greeting = Greeting(
        HelloRequest(group="g", node_id=node_id), secret=lambda answer: KEY, strict=True
    )
    asked = challenge(greeting)
    words = greeting.answered(asked)
    assert words is not None
    assert KEY.is_proof(words.proof, Side.OPENS, greeting.hello, asked)
    assert greeting.welcome is None
    last_word = HelloResponse(code=Code.SUCCESS, group=ANSWER.group, node_id=ANSWER.node_id)
    assert greeting.answered(last_word) is None
    assert greeting.welcome == asked, "what the node has said of itself"


def test_a_node_with_another_secret_gets_no_proof_and_no_word() -> None:
    for key in (Secret(b"j" * 32), None):
        greeting = Greeting(HelloRequest(node_id="n1"), secret=lambda answer: KEY)
        asked = challenge(greeting, key) if key else replace(ANSWER, proof_wanted=True)
        with pytest.raises(AccessDenied, match="n0 has another secret"):
            greeting.answered(asked)
        assert greeting.welcome is None


def test_where_a_secret_is_required_a_node_that_wants_none_is_not_taken() -> None:
    greeting = Greeting(HelloRequest(node_id="n1"), secret=lambda answer: KEY, strict=True)
    with pytest.raises(AccessDenied, match="n0 has no secret to prove"):
        greeting.answered(ANSWER)
    assert greeting.welcome is None


def test_client_without_secret_is_told_its_place_and_node_proves_none() -> None:
    """The client is told the setting; a node answers that it has no secret."""
    client, node = Greeting(), Greeting(HelloRequest(node_id="n1"))
    with pytest.raises(AccessDenied, match="secret_file"):
        client.answered(challenge(client))
    words = node.answered(challenge(node))
    assert words is not None
    assert words.proof == b""


def test_a_secret_is_asked_for_once() -> None:
    greeting = Greeting(HelloRequest(node_id="n1"), secret=lambda answer: KEY, strict=True)
    assert greeting.answered(challenge(greeting)) is not None
    assert greeting.answered(challenge(greeting)) is None


def test_all_programs_of_a_user_find_one_secret_however_many_ask_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine"))
    ready = threading.Barrier(8)

    def ask(_: int) -> bytes:
        ready.wait()
        return user_secret().read_bytes()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(ask, range(8)))) == 1
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o700
    assert read_secret(user_secret())


def test_a_user_directory_that_others_may_enter_or_own_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "mine"
    monkeypatch.setenv(VARIABLE, str(place))
    place.mkdir(mode=0o755)
    place.chmod(0o755)
    with pytest.raises(ConfigError, match=r"mode 0755.*'chmod 700"):
        user_directory()
    place.chmod(0o700)
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(ConfigError, match=f"no directory of user {own + 1}'s.*{VARIABLE}"):
        user_directory()


def test_the_home_is_that_of_the_list_of_users(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path))

    (tmp_path / "home").mkdir()
    entry = SimpleNamespace(pw_dir=str(tmp_path / "home"))
    monkeypatch.setattr("pwd.getpwuid", lambda uid: entry)
    assert user_directory() == tmp_path / "home" / ".dledger"

    (tmp_path / "file").touch()
    entry.pw_dir = str(tmp_path / "file" / "home")
    with pytest.raises(ConfigError, match=VARIABLE):
        user_secret()
