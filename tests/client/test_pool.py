"""The clients that a process keeps, such as a Spark worker that runs one task after the other."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.client.blocking.pool import shared_client
from dledger.errors import WrongGroup


def test_clients_of_a_process_are_shared_by_address_and_settings() -> None:
    one = shared_client("127.0.0.1:1", request_timeout_ms=1000)
    assert shared_client("127.0.0.1:1", request_timeout_ms=1000) is one
    assert shared_client("127.0.0.1:1", request_timeout_ms=2000) is not one
    assert shared_client("127.0.0.1:2", request_timeout_ms=1000) is not one


def test_a_client_whose_group_another_one_has_replaced_is_replaced_too(group: Any) -> None:
    client = shared_client(group.bootstrap)
    assert client.lineage().group_id == "A"
    client.close()
    group.is_now("B")
    with pytest.raises(WrongGroup):
        client.topics()
    another = shared_client(group.bootstrap)
    assert another.lineage().group_id == "B"
    another.close()
