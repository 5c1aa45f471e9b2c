"""Commands of an operator, as processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress


async def command(*words: str, most_s: float = 60.0) -> tuple[int, str]:
    """``dledger`` with these words: exit code and output. It is killed after so many seconds."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "dledger",
        *words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    saying = asyncio.ensure_future(process.communicate())
    try:
        await asyncio.wait([saying], timeout=most_s)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    said, _ = await saying
    assert process.returncode is not None
    return process.returncode, said.decode(errors="replace").strip()
