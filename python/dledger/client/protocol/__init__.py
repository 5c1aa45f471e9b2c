"""The common part of the blocking and the asyncio client: no socket, no thread."""
