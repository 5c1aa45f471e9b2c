"""Writes: each batch of a query exactly once, for streams, foreachBatch and batch writes."""
