"""The compiled functions beside those in Python: equal answers to any input."""
