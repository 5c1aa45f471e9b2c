"""Properties of many messages at once: the map, and single properties out of it."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger.rocketmq.with_numpy import np, npt

Ints = npt.NDArray[np.int64]
NAME_END: Final = 1
VALUE_END: Final = 2


def array(
    values: npt.NDArray[np.generic], kind: pa.DataType, valid: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """A column over numpy's own memory. ``pa.array`` would import pandas, which takes half a
    second."""
    mask = None
    if valid is not None and not valid.all():
        mask = pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [mask, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def slices(data: pa.Buffer, begins: Ints, ends: Ints, kind: pa.DataType) -> pa.Array:
    """Parts of a buffer, one behind the other, as a column of text or bytes.

    The buffer is taken for an array of wanted and unwanted parts in turn, of which Arrow then
    copies the wanted ones.
    """
    if not len(begins):
        return pa.Array.from_buffers(kind, 0, [None, pa.py_buffer(np.zeros(1, np.int32)), data])
    bounds = np.empty(2 * len(begins), np.int32)
    bounds[0::2], bounds[1::2] = begins, ends
    both = pa.Array.from_buffers(kind, len(bounds) - 1, [None, pa.py_buffer(bounds), data])
    return both.take(array(np.arange(0, len(bounds), 2, dtype=np.int32), pa.int32()))


def text_bounds(texts: pa.Array) -> npt.NDArray[np.int32]:
    """Where each text of a column begins in its data, and behind the last one."""
    bounds = np.frombuffer(texts.buffers()[1], np.int32)
    return bounds[texts.offset : texts.offset + len(texts) + 1]


class PropertyColumns:
    """Splits a column of property texts, in the same way as ``parse_properties`` does with one."""

    def __init__(self, texts: pa.Array) -> None:
        """Args:
        texts: strings without nulls, as ``slices`` gives them.
        """
        self._count = len(texts)
        self._data = texts.buffers()[2] or pa.py_buffer(b"")
        bounds = text_bounds(texts)
        characters = np.frombuffer(self._data, np.uint8)[: bounds[-1] if len(bounds) else 0]
        value_ends = np.flatnonzero(characters == VALUE_END)
        name_ends = np.flatnonzero(characters == NAME_END)
        begins = np.concatenate((value_ends + 1, bounds[:-1])).astype(np.int64)
        rows = np.concatenate(
            (np.searchsorted(bounds, value_ends, side="right") - 1, np.arange(self._count))
        )
        # the rest of one message comes before the next one's start
        order = np.argsort(begins, kind="stable")
        begins, rows = begins[order], rows[order]
        ends = np.sort(np.concatenate((bounds[1:], value_ends)).astype(np.int64))
        split = np.append(name_ends, len(characters))[np.searchsorted(name_ends, begins)]
        whole = (split > begins) & (split < ends - 1)
        self._rows, self._split, self._ends = rows[whole], split[whole], ends[whole]
        names = slices(self._data, begins[whole], self._split, pa.string())
        self._names = names.dictionary_encode()
        self._codes = np.frombuffer(self._names.indices.buffers()[1], np.int32)[
            : len(self._rows)
        ].astype(np.int64)

    def map(self) -> pa.Array:
        """The column of maps; of two properties with one name the later one counts, as the broker
        has it."""
        kept = self._without_repeats()
        names = self._names.dictionary.take(array(self._codes[kept].astype(np.int32), pa.int32()))
        values = slices(self._data, self._split[kept] + 1, self._ends[kept], pa.string())
        bounds = np.zeros(self._count + 1, np.int32)
        np.cumsum(np.bincount(self._rows[kept], minlength=self._count), out=bounds[1:])
        return pa.MapArray.from_arrays(array(bounds, pa.int32()), names, values)

    def values(self, name: str) -> pa.Array:
        """One property of each message, null where it has none."""
        code = pc.index(self._names.dictionary, name).as_py()
        mine = np.flatnonzero(self._codes == code) if code >= 0 else np.zeros(0, np.int64)
        chosen = np.full(self._count, -1, np.int32)
        # the last one stays where two have one name
        chosen[self._rows[mine]] = np.arange(len(mine), dtype=np.int32)
        values = slices(self._data, self._split[mine] + 1, self._ends[mine], pa.string())
        return values.take(array(np.maximum(chosen, 0), pa.int32(), chosen >= 0))

    def _without_repeats(self) -> npt.NDArray[np.int64]:
        """Numbers of the items that count."""
        everything = np.arange(len(self._rows))
        names = len(self._names.dictionary)
        keys = self._rows * names + self._codes
        if len(keys) < 2 or self._no_repeats(names):
            return everything
        _, last = np.unique(keys[::-1], return_index=True)
        return np.sort(len(keys) - 1 - last)

    def _no_repeats(self, names: int) -> bool:
        """Whether no message has two properties of one name, for as many names as an integer has
        bits."""
        if names > 62:
            return False
        bits = np.left_shift(1, self._codes)
        starts = np.flatnonzero(np.diff(self._rows, prepend=-1))
        return bool((np.bitwise_or.reduceat(bits, starts) == np.add.reduceat(bits, starts)).all())
