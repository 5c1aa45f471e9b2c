"""The check of a store's files against one another: read, and not changed."""
