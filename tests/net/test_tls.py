"""TLS: frames go both ways, and whoever cannot prove who it is stays outside."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from dledger.config import ClientConfig, NodeConfig, Tls
from dledger.errors import ConfigError, Unavailable
from dledger.net import Handlers, PeerLink, connect
from dledger.net.connections.blocking import BlockingConnection
from dledger.net.connections.handshake import Greeting
from dledger.net.connections.tls import (
    CertificateRefused,
    certificate_refused,
    client_context,
    expired_certificate,
    own_certificate,
    server_context,
)
from dledger.protocol.messages.client import AppendRequest
from dledger.protocol.messages.hello import HelloRequest
from dledger.types import NodeId
from tests.net.net_fakes import dial
from tests.net.tls_port import (
    LIMITS,
    Issue,
    OpenPort,
    ask_rpc,
    beat,
    open_blocking,
    refused,
    tls_of,
)

LARGE = [bytes([n]) * 40_000 for n in range(200)]


def test_small_and_large_frames_go_both_ways(port: OpenPort, tls: Tls, new_loop: Any) -> None:
    address = port(tls).address
    for payload in ([b"a", b"b"], LARGE):
        assert ask_rpc(new_loop, address, tls, payload) == b"".join(payload)


def test_a_connection_that_waits_sends_and_receives_whole_and_stays_usable(
    port: OpenPort, tls: Tls
) -> None:
    connection = open_blocking(port(tls).address, tls)
    assert connection.usable, "nothing comes that nobody asked for, a session ticket for one"
    for payload in ([b"a"], LARGE, [b"b"]):
        _, found = connection.ask(AppendRequest(), payload, time.monotonic() + 20)
        assert found == b"".join(payload)
        assert connection.usable
    connection.close()


def test_what_is_sent_cannot_be_read_on_the_way(port: OpenPort, tls: Tls) -> None:
    address = port(tls).address
    seen = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as between:

        def forward(source: socket.socket, target: socket.socket) -> None:
            with suppress(ConnectionError):
                while data := source.recv(65536):
                    seen.extend(data)
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)

        def accept() -> None:
            with between.accept()[0] as near, dial(address) as far:
                back = threading.Thread(target=forward, args=(far, near))
                back.start()
                forward(near, far)
                back.join(20)

        thread = threading.Thread(target=accept)
        thread.start()
        connection = open_blocking(f"127.0.0.1:{between.getsockname()[1]}", tls)
        body = b"nobody else's business"
        assert connection.ask(AppendRequest(), [body], time.monotonic() + 20)[1] == body
        connection.close()
        thread.join(20)
    assert len(seen) > 2 * len(body)
    assert body not in seen


def test_who_comes_without_tls_is_told_what_may_be_missing(
    port: OpenPort, tls: Tls, new_loop: Any
) -> None:
    node = port(tls)
    for text in refused(node.address, None, new_loop):
        assert text.startswith(f"{node.address}: ")
        assert "if it wants TLS, give tls_ca, tls_certificate, tls_key" in text
    assert not node.heard


def test_a_certificate_of_another_authority_lets_nobody_in(
    port: OpenPort, issue: Issue, new_loop: Any, tmp_path: Path
) -> None:
    authority = trustme.CA()
    trusted, foreign = issue(authority=authority), issue()
    node = port(tls_of(trusted))
    for text in refused(node.address, tls_of({**foreign, "tls_ca": trusted["tls_ca"]}), new_loop):
        assert "since its tls_ca does not know the authority that signed it" in text
    for text in refused(node.address, tls_of({**trusted, "tls_ca": foreign["tls_ca"]}), new_loop):
        assert "certificate verify failed" in text
    assert not node.heard


def test_a_node_must_have_a_certificate_for_its_own_host(
    port: OpenPort, issue: Issue, new_loop: Any
) -> None:
    authority = trustme.CA()
    node = port(tls_of(issue("elsewhere.example", authority=authority)))
    for text in refused(node.address, tls_of(issue(authority=authority)), new_loop):
        assert "127.0.0.1" in text
        assert "certificate verify failed" in text
    assert not node.heard


def test_nobody_speaks_an_older_tls(port: OpenPort, tls: Tls) -> None:
    address = port(tls).address
    context = client_context(tls)
    assert context is not None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with dial(address) as sock, pytest.raises(ssl.SSLError):
        context.wrap_socket(sock, server_hostname="127.0.0.1")


def test_who_is_silent_at_the_handshake_is_sent_away(port: OpenPort, tls: Tls) -> None:
    node = port(tls, hello_s=0.2)
    with dial(node.address) as sock:
        assert sock.recv(1) == b""


@pytest.mark.usefixtures("new_loop")
async def test_closing_does_not_wait_long_for_a_node_that_is_silent(tls: Tls) -> None:
    held, context = list[ssl.SSLSocket](), server_context(tls)
    assert context is not None
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            held.append(context.wrap_socket(listening.accept()[0], server_side=True))

        thread = threading.Thread(target=accept)
        thread.start()

        handlers = Handlers(on_frame=lambda *_: None, on_close=lambda *_: None)
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        connection = await connect(address, handlers, LIMITS, 20, tls=client_context(tls))
        connection.close()
        async with asyncio.timeout(20):  # asyncio's own patience is 30 s
            await connection.wait_closed()
        thread.join(20)
    for sock in held:
        sock.close()
    assert len(held) == 1


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_node_is_a_peer_only_with_a_certificate(
    port: OpenPort, issue: Issue, new_loop: Any, is_known: bool
) -> None:
    authority = trustme.CA()
    trusted = issue(authority=authority)
    node = port(tls_of(trusted))
    own = trusted if is_known else {**issue(), "tls_ca": trusted["tls_ca"]}
    changes: list[bool] = []
    link = PeerLink(
        lambda: node.address,
        lambda: Greeting(HelloRequest(group="g", node_id="n1")),
        on_change=changes.append,
        tls=lambda: client_context(tls_of(own)),
    )
    link.start()
    link.send(beat(1))
    async with asyncio.timeout(20):
        if is_known:
            await asyncio.to_thread(node.wait_for, beat(1))
        while not is_known and not link.dropped:  # noqa: ASYNC110 - an attempt has failed
            await asyncio.sleep(0)
    assert changes == [True] * is_known
    await link.close()
    assert (beat(1) in node.heard) is is_known


def node_config(**tls: str) -> NodeConfig:
    return NodeConfig(node_id=NodeId("n0"), directory=Path(), **tls)  # type: ignore[arg-type]


@pytest.mark.parametrize("config", [ClientConfig, node_config])
def test_all_three_files_are_given_by_absolute_paths_or_none(
    config: Callable[..., Any], issue: Issue
) -> None:
    files = issue()
    assert config().tls is None
    assert config(**files).tls == Tls(files["tls_ca"], files["tls_certificate"], files["tls_key"])
    said = "tls_ca without tls_certificate and tls_key: TLS here needs all three"
    with pytest.raises(ConfigError, match=said):
        config(tls_ca=files["tls_ca"])
    with pytest.raises(ConfigError, match=r"tls_key 'key.pem': give an absolute path"):
        config(**{**files, "tls_key": "key.pem"})


@pytest.mark.parametrize("make", [client_context, server_context])
def test_files_that_are_not_what_they_should_be_are_named(
    make: Callable[[Tls], Any], issue: Issue, tmp_path: Path
) -> None:
    files = issue()
    nowhere, no_pem, locked = (tmp_path / name for name in ("nowhere.pem", "no.pem", "locked.pem"))
    no_pem.write_text("hello")
    key = serialization.load_pem_private_key(Path(files["tls_key"]).read_bytes(), None)
    how = serialization.BestAvailableEncryption(b"secret")
    locked.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
    )
    for name, path, words in (
        ("tls_ca", nowhere, "No such file"),
        ("tls_ca", no_pem, "no PEM file of certificates"),
        ("tls_certificate", nowhere, "No such file"),
        ("tls_certificate", no_pem, "no PEM files of a certificate and its key"),
        ("tls_key", nowhere, "No such file"),
        ("tls_key", Path(issue()["tls_key"]), "no PEM files of a certificate and its key"),
        ("tls_key", locked, "has a passphrase"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            make(tls_of({**files, name: str(path)}))
        assert name in str(caught.value)


def with_list(
    authority: trustme.CA, files: dict[str, str], *revoked: dict[str, str], days: int = 1
) -> dict[str, str]:
    """The same with a list of the authority's revoked certificates, good until in ``days``."""
    key = cast(Any, authority)._private_key
    now = datetime.now(UTC)
    made = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(cast(Any, authority)._certificate.subject)
        .last_update(now - timedelta(days=7))
        .next_update(now + timedelta(days=days))
    )
    for each in revoked:
        own = x509.load_pem_x509_certificate(Path(each["tls_certificate"]).read_bytes())
        entry = x509.RevokedCertificateBuilder().serial_number(own.serial_number)
        made = made.add_revoked_certificate(entry.revocation_date(now).build())
    path = Path(files["tls_certificate"]).parent / "revoked.pem"
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    path.write_bytes(pem)
    return {**files, "tls_crl": str(path)}


def test_revoked_certificates_are_refused_by_name_on_both_sides(
    port: OpenPort, issue: Issue, new_loop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    authority = trustme.CA()
    sound, revoked = issue(authority=authority), issue(authority=authority)
    strict = with_list(authority, sound, revoked)
    node = port(tls_of(strict))
    assert ask_rpc(new_loop, node.address, tls_of(sound), [b"a"]) == b"a"
    for text in refused(node.address, tls_of(revoked), new_loop):
        assert "since it was revoked. Have it signed anew" in text
    assert any("It is on the list in tls_crl" in text for text in caplog.messages)
    for text in refused(port(tls_of(revoked)).address, tls_of(strict), new_loop):
        assert "certificate revoked" in text
        assert "It is on the list in tls_crl: have another one signed, with another key" in text


def test_a_list_that_is_old_or_of_another_authority_says_so(
    port: OpenPort, issue: Issue, new_loop: Any
) -> None:
    authority = trustme.CA()
    files = issue(authority=authority)
    node = port(tls_of(files))
    for text in refused(node.address, tls_of(with_list(authority, files, days=-1)), new_loop):
        assert "past the time of its next update: fetch the present one" in text
    for text in refused(node.address, tls_of(with_list(trustme.CA(), files)), new_loop):
        assert "tls_crl lacks the list of the authority that signed it" in text


def test_a_certificate_that_is_not_valid_yet_says_so_on_both_sides(
    port: OpenPort, issue: Issue, new_loop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    authority = trustme.CA()
    files = issue(authority=authority)
    begin = datetime(2090, 1, 1)  # noqa: DTZ001
    early = issue(authority=authority, not_before=begin, not_after=begin + timedelta(days=1))
    for text in refused(port(tls_of(files)).address, tls_of(early), new_loop):
        assert "valid from Jan  1 00:00:00 2090 GMT" in text
        assert "it is not yet valid, or broken" in text
    assert any("certificate is not yet valid" in text for text in caplog.messages)
    for text in refused(port(tls_of(early)).address, tls_of(files), new_loop):
        assert "certificate is not yet valid" in text
        assert "Compare the clocks of both machines" in text


def test_a_list_comes_with_the_other_files_and_is_one(issue: Issue, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="without tls_ca, tls_certificate, tls_key"):
        node_config(tls_crl="/crl.pem")
    files = issue()
    with pytest.raises(ConfigError, match=r"tls_crl 'crl.pem': give an absolute path"):
        node_config(**files, tls_crl="crl.pem")
    (tmp_path / "crl.pem").write_text("hello")
    with pytest.raises(ConfigError, match="no PEM file of lists of revoked certificates"):
        client_context(tls_of({**files, "tls_crl": str(tmp_path / "crl.pem")}))


def expired(authority: trustme.CA, files: dict[str, str]) -> dict[str, str]:
    """The same with a certificate that was valid in 2019."""
    begin, end = datetime(2019, 1, 1), datetime(2020, 1, 1)  # noqa: DTZ001
    own = authority.issue_cert("127.0.0.1", not_before=begin, not_after=end)
    directory = Path(files["tls_certificate"]).parent
    certificate, key = directory / "expired.pem", directory / "expired.key"
    certificate.write_bytes(b"".join(part.bytes() for part in own.cert_chain_pems))
    key.write_bytes(own.private_key_pem.bytes())
    return {**files, "tls_certificate": str(certificate), "tls_key": str(key)}


def test_peer_with_expired_certificate_is_told_its_dates_by_both_ends(
    port: OpenPort, issue: Issue, new_loop: Any
) -> None:
    authority = trustme.CA()
    files = issue(authority=authority)
    old = expired(authority, files)
    node = port(tls_of(files))
    for text in refused(node.address, tls_of(old), new_loop):
        assert old["tls_certificate"] in text
        assert "valid from Jan  1 00:00:00 2019 GMT to Jan  1 00:00:00 2020 GMT" in text
    assert not node.heard
    for text in refused(port(tls_of(old)).address, tls_of(files), new_loop):
        refusal = "certificate verify failed: this side does not take the node's certificate: "
        assert f"{refusal}certificate has exp" in text
        assert f"tls_ca {files['tls_ca']!r}, valid from" in text


def test_certificate_is_read_with_any_signer_and_any_validity_dates(issue: Issue) -> None:
    authority = trustme.CA()
    files = expired(authority, {**issue(authority=authority), "tls_ca": issue()["tls_ca"]})
    assert own_certificate(tls_of(files))["notAfter"] == "Jan  1 00:00:00 2020 GMT"


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "half written"])
def test_a_refusal_is_told_although_the_files_are_gone_or_others_by_now(
    issue: Issue, is_gone: bool
) -> None:
    files = issue()
    context = client_context(tls_of(files))
    assert context is not None
    path = Path(files["tls_certificate"])
    path.unlink() if is_gone else path.write_text("-----BEGIN")
    alert = ssl.SSLError(1, "[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca")
    alert.reason = "TLSV1_ALERT_UNKNOWN_CA"
    text = str(certificate_refused("a:1", alert, context))
    own = repr(files["tls_certificate"])
    assert f"the node refuses this side's tls_certificate {own}, which cannot be read" in text
    assert "its tls_ca does not know the authority that signed it" in text
    assert expired_certificate("a:1", context) is None


def test_who_is_refused_behind_the_loss_of_its_files_is_told_to_ask_again(
    port: OpenPort, issue: Issue
) -> None:
    """Not that its settings cannot be, as at a start: they were taken, and another node may take
    them now."""
    trusted = issue()
    foreign = {**issue(), "tls_ca": trusted["tls_ca"]}
    context = client_context(tls_of(foreign))
    Path(foreign["tls_certificate"]).unlink()
    address = port(tls_of(trusted)).address
    with pytest.raises((Unavailable, CertificateRefused)) as caught:
        BlockingConnection(address, Greeting(), limits=LIMITS, timeout_s=10, tls=context)
    assert not isinstance(caught.value, ConfigError)
