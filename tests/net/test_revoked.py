"""Certificates that the authority has revoked, and lists of them that are of no use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from dledger.config import NodeConfig, Tls
from dledger.errors import ConfigError
from dledger.net.connections.tls import CertificateRefused, server_context
from dledger.types import NodeId
from tests.net.tls_port import Port, open_blocking, refused, tls_of

Issue = Callable[..., dict[str, str]]
OpenPort = Callable[..., Port]


def crl(
    authority: trustme.CA, path: Path, *revoked: dict[str, str], until: timedelta = timedelta(1)
) -> str:
    """A list of these certificates, good ``until`` so long from now."""
    key: Any = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes()).subject
    now = datetime.now(UTC)
    made = x509.CertificateRevocationListBuilder().issuer_name(issuer)
    made = made.last_update(now - timedelta(2)).next_update(now + until)
    for files in revoked:
        pem = Path(files["tls_certificate"]).read_bytes()
        serial = x509.load_pem_x509_certificate(pem).serial_number
        one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
        made = made.add_revoked_certificate(one.build())
    signed = made.sign(key, hashes.SHA256())
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    return str(path)


def test_a_revoked_certificate_opens_nothing_and_others_do(
    port: OpenPort, issue: Issue, tmp_path: Path, new_loop: Any, caplog: Any
) -> None:
    authority = trustme.CA()
    own, alice, bob = (tls_of(issue(authority=authority)) for _ in range(3))
    listed = crl(authority, tmp_path / "crl", {"tls_certificate": alice.certificate})
    address = port(replace(own, crl=listed)).address
    (said,) = {text.partition(": ")[2] for text in refused(address, alice, new_loop)}
    assert "it was revoked" in said
    assert "It is on the list in tls_crl: have another one signed" in caplog.text
    open_blocking(address, bob).close()
    # a node that is a client of another one looks at the list too
    nodes = crl(authority, tmp_path / "nodes", {"tls_certificate": own.certificate})
    with pytest.raises(CertificateRefused, match="certificate revoked"):
        open_blocking(address, replace(bob, crl=nodes))


def test_nobody_is_taken_by_a_list_that_says_nothing(
    port: OpenPort, issue: Issue, tmp_path: Path, new_loop: Any, caplog: Any
) -> None:
    authority = trustme.CA()
    own, alice = (tls_of(issue(authority=authority)) for _ in range(2))
    lists = {
        "tls_crl has a list past the time of its next update": crl(
            authority, tmp_path / "1", until=-timedelta(1)
        ),
        "tls_crl lacks the list of the authority that signed it": crl(trustme.CA(), tmp_path / "2"),
    }
    for said, listed in lists.items():
        address = port(replace(own, crl=listed)).address
        assert refused(address, alice, new_loop)
        assert said in caplog.text


def test_a_list_is_a_pem_file_beside_the_others(issue: Issue, tmp_path: Path) -> None:
    (tmp_path / "none").write_text("no list")
    tls = tls_of(issue())
    for path in ("none", "missing"):
        with pytest.raises(ConfigError, match=f"tls_crl '.*{path}'"):
            server_context(replace(tls, crl=str(tmp_path / path)))
    node: Any = {"node_id": NodeId("n0"), "directory": tmp_path}
    with pytest.raises(ConfigError, match="tls_crl '/crl' without tls_ca"):
        NodeConfig(**node, tls_crl="/crl")
    with pytest.raises(ConfigError, match="tls_crl 'crl': give an absolute path"):
        NodeConfig(**node, **issue(), tls_crl="crl")
    found = NodeConfig(**node, **issue(), tls_crl="/crl").tls
    assert isinstance(found, Tls)
    assert found.crl == "/crl"
