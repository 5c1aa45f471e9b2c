"""A consumer, as far as it needs neither socket nor clock."""
