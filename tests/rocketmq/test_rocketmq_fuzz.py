"""Whatever the bytes are: an answer or a ``FormatError``, soon, and what was read is written again
as it was.

``make fuzz`` runs these with many more inputs (``DLEDGER_FUZZ`` of them over all parsers together),
and ``guided_fuzz.py`` with as many that follow the parsers' branches.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dledger.errors import FormatError
from tests.rocketmq.parsers import PARSERS, SEEDS


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Sound pieces put together, then cut and changed at some places; or anything at all."""
    data = bytearray(
        b"".join(draw(st.lists(st.sampled_from(SEEDS) | st.binary(max_size=40), max_size=4)))
    )
    for at, value in draw(
        st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=4)
    ):
        if data:
            data[at % len(data)] = value
    return bytes(data[draw(st.integers(0, 8)) :])


INPUTS = -(-int(os.environ.get("DLEDGER_FUZZ", "1200")) // len(PARSERS))


@pytest.mark.parametrize("parser", PARSERS, ids=lambda p: p.__name__)
@settings(max_examples=INPUTS, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=damaged())
def test_parser_answers_or_refuses(parser: Callable[[bytes], None], data: bytes) -> None:
    with contextlib.suppress(FormatError):
        parser(data)
