"""The node's files: log, hard state, tables and snapshots of the catalog.

`open_store` gives a `FileStore`; `MemoryStore` is the same without files.
"""
