"""An operator, who changes the members of a group by ``dledger members``."""

from __future__ import annotations

import asyncio
from typing import Final

from verification.chaos.command import command
from verification.chaos.scene import Scene

PATIENCE_S: Final = 90.0
"""For all steps of one change."""
TIMEOUT_S: Final = 10
"""Of one command."""
AGAIN_S: Final = 0.3
KILLED: Final = 0.3
"""So often a command is killed soon, where something else fails, too."""


class GaveUp(Exception):
    """A command was said again and again, and is not carried out."""


class Operator:
    """Says each command again until it is carried out, as the documentation allows."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._until_s = scene.acks.now_s() + PATIENCE_S

    async def say(self, *words: str) -> None:
        """``dledger members`` with these words.

        Raises:
            GaveUp: with what was said last.
        """
        scene = self._scene
        while True:
            where = "-b", scene.nodes.bootstrap_servers, "--timeout", str(TIMEOUT_S)
            is_killed = not scene.appends.calm and scene.dice.random() < KILLED
            most_s = scene.seconds(0.3, 2.0) if is_killed else PATIENCE_S
            code, text = await command("members", *words, *where, most_s=most_s)
            if code == 0:
                return
            if scene.acks.now_s() > self._until_s:
                raise GaveUp(f"dledger members {' '.join(words)}: code {code}, {text}")
            scene.said_again += 1
            if scene.appends.calm:
                scene.say(f"{'':11}said again: dledger members {' '.join(words)}: {text}")
            await asyncio.sleep(AGAIN_S)
