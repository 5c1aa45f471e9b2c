"""The optional extension of `dledger.records.digest`: the work of its modules in one pass.

Words are hashes or sums of 8 bytes each. A buffer that is written has one for each row.
"""

from typing_extensions import Buffer

def hash_bytes(bounds: Buffer, width: int, first: int, data: Buffer, out: Buffer) -> None:
    """Write the hash of each value of a binary or string array to `out`.

    Args:
        bounds: the array's offsets, of `width` bytes each (4 or 8).
        first: place of the first row's offset.

    Raises:
        ValueError: there are too few offsets, or one leads out of `data`.
    """

def hash_cells(
    values: Buffer, kind: int, first: int, valid: Buffer | None, bit: int, out: Buffer
) -> None:
    """Write the hash of each number to `out`, and that of a null where it is one. `out` may be
    `values` where these are words.

    Args:
        kind: bytes of a value, negative where it is a signed integer.
        first: place of the first row's value.
        valid: one bit for each row, the first one's at `bit`; None where no row is null.

    Raises:
        ValueError: there are too few values or bits.
    """

def hash_decimals(values: Buffer, first: int, out: Buffer) -> None:
    """Write the hash of each decimal of 16 bytes to `out`.

    Raises:
        ValueError: there are too few values.
    """

def sum_lists(bounds: Buffer, first: int, words: Buffer, out: Buffer) -> None:
    """Write the hash of each list to `out`.

    Args:
        bounds: the array's offsets, of 4 bytes each.
        first: place of the first row's offset.
        words: hashes of the lists' values, from the first one of the first row on.

    Raises:
        ValueError: there are too few offsets, or one leads out of `words`.
    """

def sum_maps(bounds: Buffer, first: int, keys: Buffer, items: Buffer, out: Buffer) -> None:
    """Write the hash of each map to `out`; the arguments are those of `sum_lists`."""

def start_sums(total: Buffer) -> None:
    """Write the sum of a row without columns for each row."""

def add_bytes(
    total: Buffer,
    bounds: Buffer,
    width: int,
    first: int,
    data: Buffer,
    valid: Buffer | None,
    bit: int,
    salt: int,
) -> None:
    """Add the cells of a binary or string column to the sums of its rows in `total`; the arguments
    are those of `hash_bytes` and `add_cells`."""

def add_cells(
    total: Buffer, values: Buffer, kind: int, first: int, valid: Buffer | None, bit: int, salt: int
) -> None:
    """Add the cells of a column of numbers to the sums of its rows in `total`; that of a null is 0.

    Args:
        salt: the number that is made of the column's name. The others are those of `hash_cells`.

    Raises:
        ValueError: there are too few values or bits.
    """

def sum_mixed(total: Buffer) -> int:
    """The sum of the mixed words, modulo 2^64."""
