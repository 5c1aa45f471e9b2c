"""The node's port: who is on a connection, and what is done with each request."""
