"""How records are printed: the options that say it, and the sinks that do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeAlias

from dledger.config import nearest
from dledger.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from dledger.cli.records.format_string import PrintedRecords
    from dledger.cli.records.printers import Printer

TABLES: Final = ("csv", "arrow", "parquet")
FORMATS: Final = ("lines", "json", *TABLES)
ENDINGS: Final = {
    ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".arrow": "arrow",
    ".arrows": "arrow", ".parquet": "parquet",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """How records are printed, as the options say it."""

    form: str
    """One of `FORMATS`, or a format string."""
    delimiter: str | None
    key_delimiter: str | None
    null: str | None
    base64: bool
    length_prefixed: bool
    output: Path | None


def choose_form(form: str | None, as_json: bool, output: Path | None) -> str:
    """The form of the options, else that of the file's name, else lines.

    Raises:
        ConfigError: two are given, or a word that is none; the message has the nearest one.
    """
    if form is not None and as_json:
        raise ConfigError("--json and --format both say the form: give one")
    if as_json:
        return "json"
    if form is None:
        return ENDINGS.get(output.suffix.lower(), "lines") if output is not None else "lines"
    if form not in FORMATS and "%" not in form and "\\" not in form:
        raise ConfigError(
            f"--format {form!r}{nearest(form, list(FORMATS))}: write one of {', '.join(FORMATS)}, "
            "or a text with letters such as '%k %s\\n'"
        )
    return form


class RecordSink:
    """Takes records, and writes them."""

    def __init__(self, write: Callable[[PrintedRecords], int], close: Callable[[], None]) -> None:
        self.write = write
        """Gives the bytes that were written."""
        self.close = close
        """Completes what is written."""


MakeSink: TypeAlias = Callable[[IO[bytes], "pa.Schema | None"], RecordSink]
"""Of a file, and the schema of a typed topic's rows where tables have them."""


def sink_for(wanted: PrintOptions, is_terminal: bool) -> MakeSink:
    """How records become bytes in a file.

    Raises:
        ConfigError: the options do not go together.
    """
    form, framed = wanted.form, wanted.length_prefixed
    unfit = {
        "--key-delimiter": wanted.key_delimiter is not None and (form != "lines" or framed),
        "--length-prefixed": framed and form != "lines",
        "--delimiter": wanted.delimiter is not None and (form != "lines" or framed),
        "--null": wanted.null is not None and (form in ("json", *TABLES) or framed),
        "--base64": wanted.base64 and form in ("json", "arrow", "parquet"),
    }
    for option, is_unfit in unfit.items():
        if is_unfit:
            beside = "--length-prefixed" if form == "lines" else f"--format {form}"
            raise ConfigError(f"{option} means nothing beside {beside}: leave one of them out")
    if form == "parquet" and wanted.output is None:
        raise ConfigError("parquet needs a file: name it with --output; a pipe takes arrow")
    if form == "arrow" and wanted.output is None and is_terminal:
        raise ConfigError("arrow is no text for a terminal: name a file with --output")
    if form in TABLES:
        return lambda out, rows: _table_sink(wanted, out, rows)
    printer = _printer(wanted)
    return lambda out, _: _text_sink(printer, out, wanted.base64)


def _printer(wanted: PrintOptions) -> Printer:
    """Raises `ConfigError` for a format string that means nothing."""
    from dledger.cli.records.format_string import Template
    from dledger.cli.records.printers import JsonLines

    return JsonLines() if wanted.form == "json" else Template("--format", _line(wanted))


def _text_sink(printer: Printer, out: IO[bytes], base64: bool) -> RecordSink:
    from dledger.cli.records.printers import as_base64

    def write(records: PrintedRecords) -> int:
        text = printer.render(as_base64(records) if base64 else records)
        out.write(text)
        out.flush()
        return len(text)

    return RecordSink(write, lambda: None)


def _line(wanted: PrintOptions) -> str:
    """The format string of records that are printed as lines."""
    if wanted.form != "lines":
        return wanted.form
    if wanted.length_prefixed:
        return "%R%s"
    end = (wanted.delimiter or "\\n").replace("%", "%%")
    if wanted.key_delimiter is None:
        return f"%s{end}"
    return f"%k{wanted.key_delimiter.replace('%', '%%')}%s{end}"


def _table_sink(wanted: PrintOptions, out: IO[bytes], rows: pa.Schema | None) -> RecordSink:
    from dledger.cli.records.printers import as_base64
    from dledger.cli.records.table_output import RowsOutput, TableOutput

    table = (
        TableOutput(wanted.form, out) if rows is None else RowsOutput(wanted.form, out, schema=rows)
    )

    def write(records: PrintedRecords) -> int:
        if isinstance(table, RowsOutput):
            table.write(records.batch)
        else:
            table.write(as_base64(records) if wanted.base64 else records)
        out.flush()
        return int(records.batch.nbytes)

    return RecordSink(write, table.close)
