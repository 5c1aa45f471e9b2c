"""Real node processes under load while links, processes, disks and clocks fail: ``python -m
verification.chaos``."""
