"""Commands that look at a running group, and steer it."""
