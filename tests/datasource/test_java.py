"""Finding a Java for Spark, with made-up ones: none, too old, broken, good, and the one from a
wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dledger.datasource import java
from dledger.errors import JavaMissing

SAYS = {
    "1.8.0_392": 8,
    "11.0.21": 11,
    "17.0.15": 17,
    "25": 25,
    "26-ea": 26,
}


def fake_java(home: Path, version: str, *, exit_code: int = 0) -> Path:
    """A home with a ``bin/java`` that says it is of this version and otherwise prints its
    arguments."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        f'[ "$1" != -version ] || {{ echo \'openjdk version "{version}" 2024-01-01\' >&2; exit '
        f"{exit_code}; }}\n"
        'printf "%s\\n" "$@"\n'
    )
    executable.chmod(0o755)
    return executable


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "wheel_java", lambda: None)


@pytest.mark.parametrize("said", SAYS)
def test_version_of_every_kind_of_java_is_read(tmp_path: Path, said: str) -> None:
    """Old ones call themselves 1.8; early access builds have a suffix."""
    assert java.java_version(fake_java(tmp_path / "jdk", said)) == SAYS[said]


def test_version_of_what_is_no_java_is_none(tmp_path: Path) -> None:
    assert java.java_version(tmp_path / "missing") is None
    assert java.java_version(fake_java(tmp_path / "broken", "17", exit_code=1)) is None
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexit 0\n")
    silent.chmod(0o755)
    assert java.java_version(silent) is None


@pytest.mark.parametrize(("at_home", "taken"), [("21.0.1", "home"), ("11.0.2", "path")])
def test_java_home_comes_before_path_unless_it_is_too_old(
    tmp_path: Path, at_home: str, taken: str
) -> None:
    fake_java(tmp_path / "home", at_home)
    fake_java(tmp_path / "path", "17.0.1")
    environ = {
        "JAVA_HOME": str(tmp_path / "home"),
        "PATH": str(tmp_path / "path" / "bin") + os.pathsep + os.defpath,
    }
    assert java.java_home(environ, tmp_path) == tmp_path / taken


@pytest.mark.usefixtures("no_wheel")
def test_no_java_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(
        JavaMissing, match=r"neither JAVA_HOME nor PATH has one.*install Java 17.*dledger\[java\]"
    ):
        java.java_home({"PATH": str(tmp_path)}, tmp_path)


@pytest.mark.usefixtures("no_wheel")
def test_java_that_is_too_old_is_named(tmp_path: Path) -> None:
    executable = fake_java(tmp_path / "old", "1.8.0_392")
    with pytest.raises(JavaMissing, match=f"{executable} is Java 8"):
        java.java_home({"JAVA_HOME": str(tmp_path / "old"), "PATH": ""}, tmp_path)


@pytest.mark.usefixtures("no_wheel")
def test_java_home_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match="gone/bin/java cannot be run"):
        java.java_home({"JAVA_HOME": str(tmp_path / "gone"), "PATH": ""}, tmp_path)


def test_wheel_is_used_behind_a_wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrapper drops the one argument that the wheel's runtime cannot take, and nothing else,
    spaces and all."""
    wheel = fake_java(tmp_path / "wheel java", "25.0.2")
    monkeypatch.setattr(java, "wheel_java", lambda: wheel)
    home = java.java_home({"PATH": str(tmp_path)}, tmp_path / "venv")
    assert home == tmp_path / "venv" / "dledger-java"
    refused = "--add-modules=jdk.incubator.vector"
    arguments = ["-Xmx1g", refused, "-cp", "a b:*", "", "Main", "--add-modules=other"]
    done = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:-1] == [word for word in arguments if word != refused]
    assert java.java_version(home / "bin" / "java") == 25
    assert java.java_home({"PATH": ""}, tmp_path / "venv") == home, "and again"


def test_ensure_java_sets_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "jdk", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path / "jdk" / "bin") + os.pathsep + os.environ["PATH"])
    java.ensure_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path / "jdk")


def test_command_prints_the_home_for_a_shell(tmp_path: Path) -> None:
    fake_java(tmp_path / "jdk", "17.0.1")
    command = [sys.executable, "-m", "dledger.datasource.java"]
    environ = {**os.environ, "JAVA_HOME": str(tmp_path / "jdk")}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'jdk'}\n")
    done = subprocess.run(
        [*command, "--instal"], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "known: --install" in done.stderr
