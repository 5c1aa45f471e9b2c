"""A store's files wherever they lie, on a local disk or at whatever fsspec knows, to be read."""
