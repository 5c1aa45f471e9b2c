"""The node's port: its connections, and the handling of each request."""
