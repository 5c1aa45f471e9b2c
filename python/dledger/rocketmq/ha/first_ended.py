"""Tasks of which the first that ends is the end of all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_ended(*parts: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
    """Run these beside each other until one of them ends, and cancel the others; the tasks that
    have ended by themselves."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [task for task in tasks if task in done]
