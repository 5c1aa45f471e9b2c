"""What nodes and clients say to one another: messages, and their bytes on a connection."""
