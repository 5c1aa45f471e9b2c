"""Measurements of dledger, each beside what the machine itself can do. ``make bench`` or ``python
-m benchmarks``."""
