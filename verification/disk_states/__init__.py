"""Crashes, flipped bytes and failing devices: the states in which they can leave a store's files,
tried one after the other.

In the manner of ALICE (Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014): the
operations of the real store are taken down, and every state that a crash may leave of them is built
and started from. Run ``python -m verification.disk_states --help``.
"""
