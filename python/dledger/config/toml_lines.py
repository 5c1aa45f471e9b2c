"""Which line of a TOML file has which key: tomllib says it of no key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str, ...]
"""Keys from the outside in."""
Lines = Mapping[Path, list[int]]


def key_lines(text: str) -> dict[Path, list[int]]:
    """The lines, from 1, of each key and table; a key that stands twice has two. Lines behind one
    that is no TOML are left out."""
    found: dict[Path, list[int]] = {}
    table: Path = ()
    for line, parsed, is_table in _statements(text):
        if is_table:
            table = _first_path(parsed)
            found.setdefault(table, []).append(line)
        else:
            for path in _paths(parsed):
                found.setdefault(table + path, []).append(line)
    return found


def _statements(text: str) -> Iterator[tuple[int, Mapping[str, Any], bool]]:
    """Each table's head and each key with its value, parsed by itself; a value may take several
    lines."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        begin, piece = at, lines[at]
        while (parsed := _parse(piece)) is None and at + 1 < len(lines):
            at += 1
            piece += "\n" + lines[at]
        if parsed is None:
            return
        if parsed:
            yield begin + 1, parsed, piece.lstrip().startswith("[")
        at += 1


def _parse(piece: str) -> Mapping[str, Any] | None:
    try:
        return tomllib.loads(piece)
    except (ValueError, RecursionError):
        return None


def _first_path(parsed: Any) -> Path:
    if isinstance(parsed, list):
        return _first_path(parsed[0])
    for key, inner in parsed.items():
        return (key, *_first_path(inner))
    return ()


def _paths(parsed: Mapping[str, Any]) -> Iterator[Path]:
    for key, value in parsed.items():
        if isinstance(value, dict) and value:
            yield from ((key, *path) for path in _paths(value))
        else:
            yield (key,)


def line_of(lines: Lines, path: Path) -> int:
    """The line of a key or table, or of the first thing in it; 0 where it is not known."""
    found = lines.get(path) or next(
        (there for key, there in lines.items() if key[: len(path)] == path), [0]
    )
    return found[0]


def printable(key: str) -> str:
    """A key for a terminal: in quotes, with escapes, where it has more than letters."""
    return key if key.isprintable() else ascii(key)


def duplicates(text: str) -> list[str]:
    """Each key or table that stands twice, with its lines."""
    return [
        f"line {found[1]}: {printable('.'.join(path))} stands a second time; the first one is on "
        f"line {found[0]}"
        for path, found in key_lines(text).items()
        if len(found) > 1
    ]
