"""What the blocking and the asyncio client share: no socket, no thread."""
