"""Streaming reads and writes of Spark."""
