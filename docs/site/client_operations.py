"""Questions and commands of the clients are declared once, in `dledger.client.protocol`, and given
to the classes when these are made. This extension of griffe, which reads the sources for
mkdocstrings, gives them to the classes on the site."""

from __future__ import annotations

from typing import Any

import griffe

from dledger import AsyncClient, Client
from dledger.client.protocol.operations.methods import Method, Operations


class ClientOperations(griffe.Extension):
    """Adds each operation as a method."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        if pkg.name != "dledger":
            return
        for kind in (Client, AsyncClient):
            place = pkg[f"{kind.__module__}.{kind.__name__}".removeprefix("dledger.")]
            for name, method in vars(Operations).items():
                if isinstance(method, Method):
                    made = getattr(kind, name)
                    declared = pkg[f"{made.__module__}.{made.__name__}".removeprefix("dledger.")]
                    place.set_member(name, _method(name, declared, awaited=kind is AsyncClient))


def _method(name: str, declared: griffe.Function, *, awaited: bool) -> griffe.Function:
    """``self`` in the place of the client's state, and the result in that of the operation."""
    _, *arguments = declared.parameters
    own = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
    returns = declared.returns
    if isinstance(returns, griffe.ExprSubscript):
        returns = returns.slice
    made = griffe.Function(
        name,
        parameters=griffe.Parameters(own, *arguments),
        returns=returns,
        docstring=declared.docstring,
    )
    if awaited:
        made.labels.add("async")
    return made
