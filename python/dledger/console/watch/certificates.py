"""The certificates of nodes, as a connection shows them, and the console's own."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from typing import Final

from dledger.config import Tls
from dledger.console.views.certificates import CertificateRow, certificate_row
from dledger.environment import REAL
from dledger.errors import DLedgerError
from dledger.net.address import split_address
from dledger.net.connections.tls import client_context, not_opened, own_certificate

TIMEOUT_S: Final = 2.0


def certificates(tls: Tls, addresses: Iterable[str]) -> list[CertificateRow]:
    """This side's own, then one of each address."""
    now_s = REAL.wall_us() / 1e6
    rows = [certificate_row("this console", own_certificate(tls), now_s)]
    return rows + [_of_node(tls, address, now_s) for address in addresses]


def _of_node(tls: Tls, address: str, now_s: float) -> CertificateRow:
    try:
        # made anew, as the files may have been
        context = client_context(tls)
        assert context is not None
        return certificate_row(address, _shown_by(address, context), now_s)
    except DLedgerError as error:
        return CertificateRow(address, error=str(error))


def _shown_by(address: str, context: ssl.SSLContext) -> dict[str, object]:
    host, port = split_address(address)
    try:
        with (
            socket.create_connection((host, port), TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            return dict(connection.getpeercert() or {})
    except OSError as error:
        raise not_opened(address, error, context) from None
