"""Frames that principals may or may not send, at a node with rules: no right is gained by any."""
