"""What a connection's principal may do with a node, and how much."""
