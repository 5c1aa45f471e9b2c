"""The optional extension of `dledger.records.digest`: the work of its modules in one pass."""

from typing_extensions import Buffer

def hash_bytes(bounds: Buffer, width: int, first: int, data: Buffer, out: Buffer) -> None:
    """Write the hash of each value of a binary or string array to `out`, 8 bytes a row.

    Args:
        bounds: the array's offsets, of `width` bytes each (4 or 8).
        first: place of the first row's offset.

    Raises:
        ValueError: there are too few offsets, or one leads out of `data`.
    """

def add_cells(
    total: Buffer, values: Buffer, kind: int, first: int, valid: Buffer | None, bit: int, salt: int
) -> None:
    """Add a column's cells to the sums of its rows, 8 bytes each in `total`; that of a null is 0.

    Args:
        kind: bytes of a value, negative where it is a signed integer.
        first: place of the first row's value.
        valid: one bit for each row, the first one's at `bit`; None where no row is null.
        salt: the number that is made of the column's name.

    Raises:
        ValueError: there are too few values or bits.
    """

def sum_mixed(total: Buffer) -> int:
    """The sum of the mixed words, modulo 2^64."""
