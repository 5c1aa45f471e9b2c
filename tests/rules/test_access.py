"""Every request and command has a row in the table of operations, so that no new one goes
unchecked."""

from __future__ import annotations

import ast
import typing
from pathlib import Path

from dledger.catalog.access.acls import OPERATIONS
from dledger.node.access import operations
from dledger.node.access.operations import COMMANDS, LISTINGS, PAYLOADS, REQUESTS
from dledger.node.handlers import request_router
from dledger.protocol.messages import catalog_commands
from dledger.protocol.messages.client import Listing
from dledger.protocol.messages.hello import HelloProof, HelloRequest, HelloResponse
from dledger.protocol.wire.message_numbers import COMMANDS as NUMBERED
from dledger.protocol.wire.message_numbers import KINDS, MESSAGES

FIRST_OF_CLIENTS = 32
"""Number of a message: requests are even, and each answer is right behind."""
OF_HANDSHAKES = {HelloRequest, HelloResponse, HelloProof}


def of_clients() -> set[type]:
    """The requests that the wire has for clients."""
    return {
        kind
        for number, kind in MESSAGES.items()
        if kind.__name__.endswith("Request") and number >= FIRST_OF_CLIENTS
    }


def test_every_request_of_clients_has_one_row() -> None:
    rows = [*REQUESTS, *PAYLOADS]
    assert len(rows) == len(set(rows))
    assert set(rows) == of_clients() - OF_HANDSHAKES


def test_every_request_that_the_router_hands_out_has_a_row() -> None:
    """Also one that the list of messages hides under another name."""
    tree = ast.parse(Path(request_router.__file__).read_text())
    (table,) = [
        returned.value
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.name == "by_request"
        and isinstance(returned := node.body[-1], ast.Return)
    ]
    assert isinstance(table, ast.Dict)
    handled = {key.id for key in table.keys if isinstance(key, ast.Name)}
    assert len(handled) == len(table.keys)
    assert handled <= {kind.__name__ for kind in REQUESTS}


def test_every_command_has_a_row_and_every_listing() -> None:
    assert set(COMMANDS) == set(NUMBERED.values()) == set(typing.get_args(catalog_commands.Command))
    assert set(LISTINGS) == set(Listing)


def test_answer_of_each_request_has_the_number_behind_it() -> None:
    """A denial is sent as that answer."""
    for kind in (*REQUESTS, *PAYLOADS):
        answer = MESSAGES[KINDS[kind] + 1]
        assert answer.__name__ == kind.__name__.replace("Request", "Response")


def test_operations_and_resources_of_rows_are_those_of_rules() -> None:
    """A need that no rule can name would be denied for ever."""
    tree = ast.parse(Path(operations.__file__).read_text())
    named = [
        [argument.id for argument in node.args[:2] if isinstance(argument, ast.Name)]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("on", "Need")
    ]
    pairs = [
        (getattr(operations, first), getattr(operations, second))
        for first, second in (found for found in named if len(found) == 2)
        if first.isupper() and second.isupper()
    ]
    assert len(pairs) > 15
    assert all(operation in OPERATIONS[kind] for operation, kind in pairs)
