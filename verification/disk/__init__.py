"""A disk and a store in memory."""
