"""The start of a store from the files that it finds."""
