"""The ready loop around the raft core, and the thread that writes the log."""
