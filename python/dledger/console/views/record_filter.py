"""Which records a reader wants to see. By columns of Arrow: no record is looked at one by one."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dledger.records.columns.arrays import counting


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """All that are not empty must hold."""

    key: str = ""
    """The key as text, all of it."""
    contains: str = ""
    """Text within the value."""
    header: str = ""
    """A header by its name, as ``trace``, or with its value, as ``trace=7``."""

    def __bool__(self) -> bool:
        return bool(self.key or self.contains or self.header)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records of a batch of offset, timestamp, key, value and headers that fit."""
        masks = []
        if self.key:
            masks.append(pc.equal(batch.column("key"), _binary(batch, "key", self.key)))
        if self.contains:
            value = batch.column("value")
            masks.append(pc.match_substring(value, self.contains.encode(errors="surrogateescape")))
        if self.header:
            masks.append(_has_header(batch.column("headers"), self.header))
        for mask in masks:
            # one after the other would be filtered with masks of other lengths
            masks[0] = pc.and_kleene(masks[0], mask)
        return batch.filter(masks[0]) if masks else batch


def _binary(batch: pa.RecordBatch, column: str, text: str) -> pa.Scalar:
    return pa.scalar(text.encode(errors="surrogateescape"), batch.schema.field(column).type)


def _has_header(headers: pa.Array, wanted: str) -> pa.Array:
    """Whether any header of a record is the one that is wanted."""
    name, equals, value = wanted.partition("=")
    every = headers.flatten()
    fits = pc.equal(every.field("key"), name)
    if equals:
        text = pa.scalar(value.encode(errors="surrogateescape"), pa.binary())
        fits = pc.and_kleene(fits, pc.equal(every.field("value"), text))
    rows = pc.list_parent_indices(headers).filter(fits)
    return pc.is_in(counting(0, len(headers)), value_set=rows)
