"""Batch reads and writes of Spark."""
