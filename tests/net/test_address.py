"""Addresses: what is taken for one, and what is wrong with others."""

from __future__ import annotations

import pytest

from dledger import Client
from dledger.errors import ConfigError
from dledger.net.address import join_address, split_address


@pytest.mark.parametrize(
    ("address", "host"),
    [("a:1", "a"), ("[::1]:1", "::1"), ("10.0.0.1:1", "10.0.0.1"), (" büro.de.:1 ", "büro.de.")],
)
def test_address_has_a_host_and_a_port(address: str, host: str) -> None:
    assert split_address(address) == (host, 1)
    assert join_address(host, 1) == address.strip()


@pytest.mark.parametrize("address", ["a", ":1", "a:0", "a:65536", "a:x", ""])
def test_other_text_is_no_address(address: str) -> None:
    with pytest.raises(ConfigError, match="write host:port"):
        split_address(address)


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "a\0b"])
def test_name_that_no_host_can_have_is_refused(host: str) -> None:
    """A resolver raises no error of the network for it."""
    with pytest.raises(ConfigError, match="no host can have the name"), Client(f"{host}:1"):
        pass
