"""A file with every setting of a node: what it means, and its default."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import Final

from dledger.config.sections import all_settings, as_toml

HEAD: Final = """\
# Settings of a node: dledger serve --config FILE. An option of the command line comes before
# DLEDGER_SERVE_NAME in the environment, that before this file, and that before a default.
# dledger serve --config FILE --check tells what is wrong. Settings in [group], [elections],
# [replication] and [limits] are the same on every node.
"""
GIVEN: Final = {
    "peers": "n0-127.0.0.1:7001;n1-127.0.0.1:7002;n2-127.0.0.1:7003",
    "self_id": "n0",
    "directory": "/var/lib/dledger/n0",
}
"""Examples of those without a default."""


def example() -> str:
    """The text of the file; what has a default is a comment."""
    lines = [HEAD]
    for section, settings in groupby(all_settings().values(), lambda one: one.section):
        lines.append(f"\n[{section}]\n")
        for one in settings:
            meaning = one.meaning.replace("``", "'")
            lines += [f"# {line}\n" for line in textwrap.wrap(meaning, 96)]
            if one.name in GIVEN:
                lines.append(f"{one.name} = {as_toml(GIVEN[one.name])}\n")
            else:
                lines.append(f"# {one.name} = {as_toml(one.default)}\n")
    return "".join(lines)
