"""``make bench-compare``: two names become two checkouts with a set-up, or an error that says why
not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.compare import Side, ready, side

MAKEFILE = (
    "setup:\n\t@cat release > made; test -s release || { echo nothing to install; exit 3; }\n"
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two releases of a project whose set-up copies its number; the second one is checked out."""
    top = tmp_path / "repository"
    (top / "benchmarks").mkdir(parents=True)
    (top / "benchmarks" / "groups.py").touch()
    (top / "Makefile").write_text(MAKEFILE)
    git(top, "init", "--quiet", "--initial-branch=main")
    for release in ("one", "two"):
        (top / "release").write_text(release)
        git(top, "add", "--all")
        git(top, "commit", "--quiet", f"--message=release {release}")
        git(top, "tag", release)
    return top


def git(top: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *words], cwd=top, check=True)


def test_revisions_are_cloned_and_set_up_each_in_its_directory(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAKEFLAGS", "--question")  # as an outer make's would, for its own purpose
    sides = [side("one", repository), side("HEAD", repository)]
    for one, name in zip(sides, ("one", "two"), strict=True):
        assert one.title.endswith(f"release {name}")
    with ready(sides) as checkouts:
        assert [(path / "made").read_text() for path in checkouts] == ["one", "two"]
    assert not any(path.exists() for path in checkouts)
    assert not (repository / "made").exists()


def test_directory_is_measured_as_it_is_and_its_changes_are_named(repository: Path) -> None:
    (repository / "release").write_text("changed")
    one = side(str(repository), repository)
    assert one.title.endswith("release two, with changes that are not committed: release")
    with ready([one]) as [path]:
        assert path == repository
    assert (repository / "made").read_text() == "changed"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("three", "'three' is neither a directory nor a revision of "),
        ("--all", "'--all' is neither a directory nor a revision of "),
        ("{tmp}", "is a directory without a Makefile and benchmarks/ to run"),
        ("old", "'old' is before benchmarks/groups.py, so nothing can be measured"),
    ],
)
def test_name_that_cannot_be_measured_is_an_error_that_says_why(
    repository: Path, tmp_path: Path, name: str, why: str
) -> None:
    git(repository, "rm", "--quiet", "-r", "benchmarks")
    git(repository, "commit", "--quiet", "--message=before benchmarks")
    git(repository, "tag", "old")
    with pytest.raises(SystemExit, match=why.replace("'", ".")):
        side(name.replace("{tmp}", str(tmp_path)), repository)


def test_failed_set_up_is_an_error_with_its_last_words(repository: Path) -> None:
    (repository / "release").write_text("")
    with (
        pytest.raises(SystemExit, match=r"make setup of here ended with \d+:\nnothing to install"),
        ready([Side(repository, None, "here")]),
    ):
        pass
