"""The node's loop: raft's effects carried out, proposals, and committed entries applied."""
