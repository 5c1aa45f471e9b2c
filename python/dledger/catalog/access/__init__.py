"""Who may use the group: its users and their tokens."""
