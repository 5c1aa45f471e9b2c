"""Whether a group's version is one that a program supports, and what to install where it is not."""

from __future__ import annotations

from typing import Final

from dledger.errors import UnsupportedVersion
from dledger.release import FIRST_RELEASES, GROUP_VERSION, OLDEST_GROUP_VERSION, RELEASE

Versions = tuple[int, int]
"""The oldest and the newest group version that a node supports."""
NO_VERSIONS: Final[Versions] = (0, 0)
"""Those of a node that announces none."""
SUPPORTED: Final[Versions] = (OLDEST_GROUP_VERSION, GROUP_VERSION)
"""Those of this release."""


def check_supported(version: int, release: str) -> None:
    """Raises `UnsupportedVersion` for a group version above those of this release. ``release``: the
    first one that supports it."""
    if version > GROUP_VERSION:
        raise UnsupportedVersion(
            f"the group has version {version}, and dledger {RELEASE}, which runs here, supports "
            f"versions up to {GROUP_VERSION}: install dledger {release} or newer"
        )


def lacking(node_id: str, release: str, versions: Versions, version: int) -> str:
    """Why a node cannot be a member of a group with this version; empty where it can.
    ``release``: the node's own."""
    oldest, newest = versions
    runs = f"{node_id} runs dledger {release or 'of an older release'}, which supports"
    if version > newest:
        first = FIRST_RELEASES.get(version, "")
        install = f"dledger {first} or newer" if first else f"a release with version {version}"
        return f"{runs} group versions up to {newest}, not {version}: install {install} there"
    if version < oldest:
        return (
            f"{runs} group versions from {oldest} on, not {version}: first run 'dledger upgrade' "
            "with the release before it"
        )
    return ""
