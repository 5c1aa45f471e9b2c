"""Bodies of entries: records and typed rows as Arrow behind a header of 64 bytes."""
