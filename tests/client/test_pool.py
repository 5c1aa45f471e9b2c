"""The clients that a process keeps, such as a Spark worker that runs one task after the other."""

from __future__ import annotations

from dledger.client.pool import shared_client


def test_clients_of_a_process_are_shared_by_address_and_settings() -> None:
    one = shared_client("127.0.0.1:1", request_timeout_ms=1000)
    assert shared_client("127.0.0.1:1", request_timeout_ms=1000) is one
    assert shared_client("127.0.0.1:1", request_timeout_ms=2000) is not one
    assert shared_client("127.0.0.1:2", request_timeout_ms=1000) is not one
