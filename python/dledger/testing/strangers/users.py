"""Running a program as another Unix user, who has nothing in common with this one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from dledger.errors import ConfigError

STRANGER: Final = 65_534
"""The numbers of users and groups that own nothing: ``nobody`` on most systems."""

INTRUDER: Final = (sys.executable, "-m", "dledger.testing.strangers.intruder")


def command(*arguments: str) -> list[str]:
    """The command line of `dledger.testing.strangers.intruder` as another user.

    Raises:
        ConfigError: this machine has no way to be another user.
    """
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        raise ConfigError(
            "the strangers are other Unix users, and this process cannot become one: run it as root with setpriv "
            "(util-linux) installed, in a container for one. A user namespace of one's own (unshare -U) is no other "
            "user: its processes still own this user's files"
        )
    become = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "--inh-caps=-all"]
    return [*become, *INTRUDER, *arguments]


def intrude(*arguments: str, as_another: bool = True, limit_s: float = 300.0) -> dict[str, Any]:
    """Run it to its end, ``as_another`` user or as this one; what it says that it achieved.

    Raises:
        ConfigError: as `command`, or it could not run.
    """
    line = command(*arguments) if as_another else [*INTRUDER, *arguments]
    done = subprocess.run(line, capture_output=True, text=True, timeout=limit_s, check=False, cwd="/")
    if done.returncode:
        raise ConfigError(f"the intruder ended with {done.returncode}: {done.stderr.strip()[-800:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check_stranger(secret: Path) -> dict[str, Any]:
    """That the other user is one: it must not get at ``secret``, a file that only this user may read.

    Raises:
        ConfigError: it can, so nothing that it is refused means anything.
    """
    secret.write_text("mine")
    secret.chmod(0o600)
    found = intrude("files", "--path", str(secret))
    if found["uid"] == os.getuid() or found["read"]:
        raise ConfigError(f"the other user is none: uid {found['uid']} reads {secret}")
    return found
