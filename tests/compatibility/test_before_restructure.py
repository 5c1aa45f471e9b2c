"""What the release before the restructure has written is read as it read it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from tests.compatibility import log_story, wire_story

GOLDEN = Path(__file__).parents[1] / "golden"
LOG = GOLDEN / "log_before_restructure.tar.gz"
"""Of commit 0cc0c48, by ``log_story.py``: ``three``, and ``three.json``, what it read there."""
FRAMES = [
    line
    for line in (GOLDEN / "frames_before_restructure.txt").read_text().splitlines()
    if line.split("\t")[2].partition("(")[0] not in wire_story.CHANGED
]
"""Of the same commit, by ``wire_story.py``."""


def test_a_group_of_the_release_before_reads_as_it_did(tmp_path: Path) -> None:
    with tarfile.open(LOG) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "three").rename(tmp_path / "log")
    expected = json.loads((tmp_path / "three.json").read_text())
    assert len(expected["records"]["events/2"]) == 53
    assert json.loads(json.dumps(log_story.read(tmp_path))) == expected


@pytest.mark.parametrize("line", FRAMES, ids=lambda line: line.split("\t")[2].partition("(")[0])
def test_a_frame_of_the_release_before_is_decoded_and_encoded_alike(line: str) -> None:
    assert wire_story.decoded(line) == line


def test_each_message_has_a_frame_of_the_release_before() -> None:
    """The frames of today are those of before, and so are all their fields."""
    assert wire_story.frames() == FRAMES
