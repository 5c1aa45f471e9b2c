"""The disk below the log: files, direct writes, and disk space that is taken in steps."""
