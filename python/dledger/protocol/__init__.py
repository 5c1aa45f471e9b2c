"""The protocol of nodes and clients: messages, and their bytes on a connection."""
