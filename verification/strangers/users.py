"""Two Unix users that have nothing in common: the owner of the nodes, and the stranger."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from dledger.errors import ConfigError
from dledger.net.user_directory import VARIABLE
from verification.result import commit, save

OWNER: Final = 54_321
"""Runs the campaign, its nodes and its clients. The two users need not be known to the system."""
STRANGER: Final = 54_322
"""Runs the attacks on them."""
INTRUDER: Final = ("-m", "verification.strangers.intruder")
CAMPAIGN: Final = ("-m", "verification.strangers")
LIMIT_S: Final = 300.0
NOT_NEEDED: Final = ("pyspark", "py4j", "mypy", "pytest*", "__pycache__")
"""Large packages that the two users do not run."""
OURS: Final = ("dledger", "pyspark_dledger", "verification")
"""Packages that the environment takes from the checkout, where other users cannot go."""
NAMESPACE: Final = ("unshare", "-U", "--map-root-user", "--map-auto")
"""A namespace of users whose root may become others: those that /etc/subuid grants to this user."""

Intrude = Callable[..., dict[str, Any]]
"""``intrude(*arguments)`` runs `verification.strangers.intruder` to its end, and returns the
effects that it reports."""


def become(uid: int, *line: str) -> list[str]:
    """The command line as this user and no other."""
    return [
        "setpriv",
        f"--reuid={uid}",
        f"--regid={uid}",
        "--clear-groups",
        "--inh-caps=-all",
        *line,
    ]


def check_users() -> list[str]:
    """The words in front of the command line of a program that may become both users.

    Raises:
        ConfigError: this machine has no way to be two other users.
    """
    for before in ([], [*NAMESPACE, "--"]):
        try:
            done = [
                subprocess.run(
                    [*before, *become(uid, "true")], capture_output=True, check=False
                ).returncode
                for uid in (OWNER, STRANGER)
            ]
        except OSError:  # no such program
            continue
        if not any(done):
            return before
    raise ConfigError(
        "the nodes and the strangers are two Unix users, and this process can become neither: run "
        "it as root with setpriv (util-linux), in a container for one, or without root where "
        "'unshare -U --map-root-user --map-auto' works (util-linux 2.38, newuidmap, and ids for "
        "this user in /etc/subuid). A namespace without such ids has no other user: its processes "
        "own this user's files"
    )


def as_two_users(arguments: Sequence[str], json_file: Path | None) -> int:
    """Run the campaign as the owner, beside a process of the stranger that carries out its attacks;
    the exit code.

    Raises:
        ConfigError: as `check_users`.
    """
    before = check_users()
    if before:
        more = [] if json_file is None else ["--json", str(json_file.absolute())]
        return subprocess.run(
            [*before, sys.executable, *CAMPAIGN, *arguments, *more], check=False
        ).returncode
    homes = [_home(uid) for uid in (OWNER, STRANGER)]
    found = homes[0] / "found.json"
    same = (*arguments, "--json", str(found))
    (asked, ask), (told, tell) = os.pipe(), os.pipe()
    try:
        stranger = _start(STRANGER, homes[1], *INTRUDER, "serve", stdin=asked, stdout=tell)
        line = (*CAMPAIGN, *same, "--intruder", f"{told},{ask}")
        owner = _start(OWNER, homes[0], *line, pass_fds=(told, ask))
        for end in (asked, ask, told, tell):
            os.close(end)
        code = owner.wait()
        stranger.wait()  # its input has ended with the campaign
        if json_file is not None and found.exists():
            # this checkout is not the owner's
            save({**json.loads(found.read_text()), "commit": commit()}, json_file)
        return code
    finally:
        for home in homes:
            shutil.rmtree(home)


def _start(uid: int, home: Path, *line: str, **files: Any) -> subprocess.Popen[bytes]:
    """This Python as that user, with these open files."""
    command = become(uid, _python(home), *line)
    return subprocess.Popen(command, cwd=home, env=_environment(home), **files)


def _home(uid: int) -> Path:
    """A directory of that user's, with this environment's Python and packages: its own may lie
    where others cannot go.

    Raises:
        ConfigError: that user cannot run it all the same.
    """
    home = Path(tempfile.mkdtemp(prefix="dledger-user-"))
    (home / "bin").mkdir()
    shutil.copy(Path(sys.executable).resolve(), _python(home))
    library = Path("lib", Path(os.__file__).parent.name)
    ignored = shutil.ignore_patterns(*NOT_NEEDED)
    shutil.copytree(sys.prefix / library, home / library, ignore=ignored, copy_function=_link)
    for package in OURS:
        target = home / library / "site-packages" / package
        if not target.exists():
            shutil.copytree(_folder(package), target, ignore=ignored, copy_function=_link)
    (home / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    os.chown(home, uid, uid)
    line = become(uid, _python(home), "-c", "import dledger, verification")
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd="/")
    if done.returncode:
        shutil.rmtree(home)
        raise ConfigError(f"user {uid} cannot run {sys.executable}: {done.stderr.strip()[-400:]}")
    return home


def _folder(package: str) -> Path:
    """Where its modules lie."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations)))


def _link(source: str, target: str) -> None:
    """The same file under another name, or a copy on another disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _python(home: Path) -> str:
    return str(home / "bin" / "python")


def _environment(home: Path) -> dict[str, str]:
    """The other user's environment: PATH, LANG and TMPDIR of the caller, and directories of its
    own."""
    own = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR")}
    return {**own, "HOME": str(home), VARIABLE: str(home / "dledger")}


class OtherUser:
    """`Intrude` through two pipes, at whose other ends `serve` is."""

    def __init__(self, told: int, ask: int) -> None:
        self._told = os.fdopen(told)
        self._ask = os.fdopen(ask, "w")

    def __call__(self, *arguments: str) -> dict[str, Any]:
        self._ask.write(json.dumps(arguments) + "\n")
        self._ask.flush()
        line = self._told.readline()
        if not line:
            raise ConfigError("the stranger's process has ended")
        return _read(*json.loads(line))


def same_user(*arguments: str) -> dict[str, Any]:
    """`Intrude` as this user."""
    return _read(*run(arguments))


def run(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run the intruder to its end: exit code, output, errors."""
    done = subprocess.run(
        [sys.executable, *INTRUDER, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=LIMIT_S,
    )
    return done.returncode, done.stdout, done.stderr


def _read(code: int, output: str, errors: str) -> dict[str, Any]:
    if code:
        raise ConfigError(f"the intruder ended with {code}: {errors.strip()[-800:]}")
    found: dict[str, Any] = json.loads(output)
    return found


def check_stranger(secret: Path, intrude: Intrude) -> int:
    """The other user's id. It must not get at ``secret``, a file that only this user may read.

    Raises:
        ConfigError: it can, or one of both is root, so that a refusal proves nothing.
    """
    secret.write_text("mine")
    secret.chmod(0o600)
    found = intrude("files", "--path", str(secret))
    uid = int(found["uid"])
    if uid == os.getuid() or found["read"] or 0 in (uid, os.getuid()):
        raise ConfigError(
            f"the other user is none: uid {uid} reads what uid {os.getuid()} keeps to itself"
        )
    return uid
