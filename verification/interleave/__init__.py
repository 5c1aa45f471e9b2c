"""Interleavings of threads that share a store: each disk operation and each lock is a switching
point.

A scenario is some threads over the real classes. A schedule says which thread goes on at each
switching point, and where the process is killed or the power goes; it comes from a seed, and the
same seed gives it again. Then the store is opened again, and all that it promised to keep must be
there.
"""
