"""The log in segment files: its index, its writers and its readers."""
