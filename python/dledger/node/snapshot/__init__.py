"""The catalog's snapshots on the disk, and states that members give one another."""
