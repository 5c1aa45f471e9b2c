"""msgpack in and out, with the limits that keep a hostile header from costing memory or time."""

from __future__ import annotations

from typing import Any, Final

import msgpack

from dledger.interrupts import is_interrupt
from dledger.types import Buffer

MAX_DEPTH: Final = 16
"""Containers in containers; our deepest message has four."""
SMALL: Final = 2048
"""A header this short cannot claim enough nested containers to matter (below 12 MB for a moment),
so it is not walked before it is unpacked."""
_FIXED: Final = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), 0),  # nil, false, true
    # numbers
    **{0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xCA: 4, 0xCB: 8},
}
# bin and str: bytes of their length
_COUNTED: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
# bytes of the count, values per count
_CONTAINERS: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}

_packers: list[Any] = []


def pack(value: Any) -> bytes:
    """msgpack of plain values.

    Raises:
        ValueError, TypeError, OverflowError: a value has no msgpack form.
    """
    try:
        packer = _packers.pop()  # a packer is not reentrant; taking one from the list is atomic
    except IndexError as error:
        if is_interrupt(error):
            raise
        packer = msgpack.Packer()
    packed: bytes = packer.pack(value)
    _packers.append(packer)  # after an error it is dropped: it may hold half a value
    return packed


def unpack(data: Buffer) -> Any:
    """One msgpack value that fills ``data``; arrays come as tuples.

    Raises:
        ValueError: not msgpack, cut, more behind it, nested too deep, or a container that claims
            more than is there.
    """
    size = len(data)
    if size > SMALL:
        check_shape(data)
    try:
        return msgpack.unpackb(
            data, use_list=False, strict_map_key=False, max_ext_len=0, ext_hook=_refuse, timestamp=3
        )
    except TypeError as error:  # an unhashable map key
        raise ValueError(str(error)) from None


def _refuse(code: int, data: bytes) -> Any:
    raise ValueError(f"extension type {code} is not used here")


def check_shape(data: Buffer) -> None:
    """Walk over the tokens: no container deeper than MAX_DEPTH, none that claims more values than
    bytes are left.

    Raises:
        ValueError: there is one.
    """
    at, size = 0, len(data)
    open_containers: list[int] = []  # values that each still waits for
    while at < size:
        token = data[at]
        at += 1
        count = -1
        if token < 0x80 or token >= 0xE0:
            pass
        elif token < 0xA0:
            count = token & 15 if token >= 0x90 else 2 * (token & 15)
        elif token < 0xC0:
            at += token & 31
        elif token in _FIXED:
            at += _FIXED[token]
        elif token in _COUNTED:
            width = _COUNTED[token]
            at += width + int.from_bytes(data[at : at + width], "big")
        elif token in _CONTAINERS:
            width, values = _CONTAINERS[token]
            count = values * int.from_bytes(data[at : at + width], "big")
            at += width
        else:
            raise ValueError(f"msgpack type {token:#x} is not used here")
        if open_containers:
            open_containers[-1] -= 1
        if count > size - at:
            raise ValueError(f"a container claims {count} values in {size - at} bytes")
        if count > 0:
            open_containers.append(count)
            if len(open_containers) > MAX_DEPTH:
                raise ValueError(f"containers are nested deeper than {MAX_DEPTH}")
        while open_containers and not open_containers[-1]:
            open_containers.pop()
