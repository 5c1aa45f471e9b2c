"""Messages and entries of a log as Arrow columns."""
