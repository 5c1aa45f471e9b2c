"""The log as Spark's table: its columns, typed topics, and what the edge asks the log."""
