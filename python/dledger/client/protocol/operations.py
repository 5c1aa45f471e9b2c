"""Operations as methods of the clients: each is declared once, with its docstring, and carried out
by either client."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

from dledger.client.protocol.client_state import ClientState, Operation, T

P = ParamSpec("P")
Declared = Callable[Concatenate[ClientState, P], Operation[T]]
"""An operation of both clients: a function of the client's state and the arguments of the
method."""
Method = TypeVar("Method", bound=Callable[..., Any])


def as_method(method: Method, operation: Callable[..., Any]) -> Method:
    """``method`` with the name, docstring and signature of ``operation``: ``self`` where that has
    the client's state, and the result itself where that has an `Operation`."""
    declared = inspect.signature(operation)
    _, *arguments = declared.parameters.values()
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    result = str(declared.return_annotation).removeprefix("Operation[").removesuffix("]")
    update_wrapper(method, operation)
    method.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [own, *arguments], return_annotation=result
    )
    return method
