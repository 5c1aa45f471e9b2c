"""What is appended: the options that say it, and the records that they mean."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dledger.errors import ConfigError, PathError

if TYPE_CHECKING:
    import pyarrow as pa

    from dledger.cli.records.inputs import Input, Lines
    from dledger.cli.records.topic_columns import TopicColumns

FORMATS: Final = ("lines", "json", "csv", "arrow", "parquet", "file")
"""What is read; the ending of a file's name says it for tables."""
TABLES: Final = {
    ".csv": "csv", ".parquet": "parquet", ".arrow": "arrow", ".arrows": "arrow",
    ".feather": "arrow",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AppendOptions:
    """What is appended, as the options say it."""

    topic: str
    files: Sequence[Path]
    values: Sequence[str]
    form: str
    key: str | None
    key_delimiter: str | None
    headers: Sequence[str]
    partition: int | None
    delimiter: str | None
    length_prefixed: bool
    base64: bool
    null: str | None
    count: int | None
    evolve: bool

    @property
    def for_lines(self) -> bool:
        """Whether an option is there that says what lines are."""
        texts = (self.key_delimiter, self.delimiter, self.null)
        return self.length_prefixed or self.base64 or any(text is not None for text in texts)


def check(given: AppendOptions) -> None:
    """Raises `ConfigError` for options that do not go together, or mean nothing."""
    if given.key is not None and given.key_delimiter is not None:
        raise ConfigError("--key and --key-delimiter exclude each other: give one")
    if given.values and given.files:
        raise ConfigError("--value and FILE are both records: give one of them")
    texts = {
        "--key-delimiter": given.key_delimiter,
        "--delimiter": given.delimiter,
        "--null": given.null,
        "--base64": given.base64 or None,
        "--length-prefixed": given.length_prefixed or None,
    }
    there = [name for name, value in texts.items() if value is not None]
    if given.form not in (None, "lines") and there:
        raise ConfigError(
            f"{there[0]} means nothing beside --format {given.form}: leave one of them out"
        )
    if given.length_prefixed and len(there) > 1:
        raise ConfigError(
            f"{there[0]} means nothing beside --length-prefixed: leave one of them out"
        )
    if given.form == "file" and not given.files:
        raise ConfigError("--format file: which files? Name them behind the topic")
    if given.form == "parquet" and not given.files:
        raise ConfigError("--format parquet: name a file behind the topic; a pipe takes arrow")
    from dledger.cli.records.inputs import Decoration

    _lines(given)
    Decoration(given.key, given.headers)


def records_of(given: AppendOptions, columns: TopicColumns) -> Iterator[pa.RecordBatch]:
    """The records as they come, in columns (see `dledger.cli.records.inputs`), or rows of a typed
    topic."""
    from dledger.cli.records.inputs import Decoration

    return map(Decoration(given.key, given.headers).put_on, _read(given, columns))


def _read(given: AppendOptions, columns: TopicColumns) -> Iterator[pa.RecordBatch]:
    from dledger.cli.records import inputs

    if given.values or given.form == "file":
        columns.check_lines()
    if given.values:
        texts = [text.encode() for text in given.values]
        yield inputs.records_of_lines(texts, _lines(given), "--value", 1)
    elif given.form == "file":
        yield from inputs.file_records(given.files)
    else:
        for path in given.files or [Path("-")]:
            with _open(path) as one:
                yield from _read_one(given, one, path.suffix.lower(), columns)


def _read_one(
    given: AppendOptions, one: Input, suffix: str, columns: TopicColumns
) -> Iterator[pa.RecordBatch]:
    from dledger.cli.records import inputs

    form = given.form or ("lines" if given.for_lines else TABLES.get(suffix, "lines"))
    if columns.is_typed and (given.key is not None or given.headers):
        raise ConfigError(
            f"--key and --header are for keys and values, and topic {given.topic!r} is typed"
        )
    if form == "json" and not columns.is_typed:
        yield from inputs.json_records(one)
    elif form in ("json", *TABLES.values()):
        yield from columns.rows(one, form)
    else:
        columns.check_lines()
        if given.length_prefixed:
            yield from inputs.framed_records(one)
        else:
            yield from inputs.line_records(one, _lines(given))


def _lines(given: AppendOptions) -> Lines:
    from dledger.cli.records.format_string import unescape
    from dledger.cli.records.inputs import Lines

    key_delimiter = given.key_delimiter
    return Lines(
        unescape("--delimiter", given.delimiter or "\\n"),
        None if key_delimiter is None else unescape("--key-delimiter", key_delimiter),
        None if given.null is None else given.null.encode(),
        given.base64,
    )


@contextmanager
def _open(path: Path) -> Iterator[Input]:
    """A file, or stdin for ``-``. Raises `PathError` for one that cannot be read."""
    from dledger.cli.records.inputs import Input

    if str(path) == "-":
        yield Input("stdin", sys.stdin.buffer)
        return
    try:
        stream = path.open("rb")
    except OSError as error:
        raise PathError(f"{path}: {error.strerror}") from None
    with stream:
        yield Input(str(path), stream)
