"""The log as Spark's table: its columns, typed topics, and the edge's questions to the log."""
