"""A digest of rows that does not depend on their order, or on how they are split over batches.

Each row has a 64-bit hash of its columns' names and values; the digest of a set of rows is the sum
of their hashes, modulo 2^64. A column in which all is null changes nothing, so rows keep their
digest when a nullable column is added. Whether a write that is run again has the same rows is a
comparison of two counts and two digests: a difference goes unseen with a probability of some 2^-64.
It protects from accidents, not from a search for rows with equal digests.

A row is the sum of its columns, each multiplied by a number that is made of its name, and then
mixed. The digests are kept in the catalog, so the hash of a row must never change. `values` has the
hash of a value of each type, `texts` that of strings and binary values, `mixing` the arithmetic:
they say what a digest is, with Arrow's functions. `natively` does the same by the extension
`_native`; where that could not be compiled, the others do the work and take some times as long.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType

import pyarrow as pa

from dledger.records.digest.mixing import MASK

way: ModuleType
try:
    import dledger.records.digest.natively as way
except ImportError:  # no compiler was found when this was installed
    import dledger.records.digest.values as way


@dataclass(frozen=True, slots=True)
class RowsSum:
    """How many rows there are, and their digest, as a number of 64 bits."""

    count: int = 0
    digest: int = 0

    def __add__(self, other: RowsSum) -> RowsSum:
        """Of the rows of both."""
        return RowsSum(self.count + other.count, (self.digest + other.digest) & MASK)


def sum_rows(batch: pa.RecordBatch, columns: Iterable[int] | None = None) -> RowsSum:
    """Count and digest of a batch; the arguments are those of `digest`."""
    return RowsSum(batch.num_rows, digest(batch, columns))


def digest(batch: pa.RecordBatch, columns: Iterable[int] | None = None) -> int:
    """The digest of a batch's rows, by all columns or by those at these places.

    Args:
        batch: of any types that a topic can have.
        columns: places of columns; their names count in lower case, their order does not.

    Raises:
        TypeError: a column's type has no hash.
    """
    places = range(batch.num_columns) if columns is None else columns
    cells = ((batch.schema.field(place).name.lower(), batch.column(place)) for place in places)
    found: int = way.sum_of_rows(cells, batch.num_rows)
    return found


__all__ = ["RowsSum", "digest", "sum_rows"]
