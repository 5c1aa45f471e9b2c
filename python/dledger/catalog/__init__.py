"""The state machine over committed entries."""
