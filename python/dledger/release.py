"""Which release of the package this is, which pyproject.toml takes from here, and the group
versions that it supports (docs/compatibility.md)."""

from typing import Final

RELEASE: Final = "0.2.0"
OLDEST_GROUP_VERSION: Final = 0
"""Nodes that announce no version, and groups that were never upgraded, have version 0."""
GROUP_VERSION: Final = 1
"""The newest group version that this release supports."""
FIRST_RELEASES: Final = {1: "0.2.0"}
"""The release that brings each group version."""
