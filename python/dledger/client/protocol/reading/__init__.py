"""Reads of a range of offsets: requests, replicas, and the position of a reader."""
