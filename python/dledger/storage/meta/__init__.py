"""The small records beside the log: hard state, recovery point, members, snapshots and tables."""
