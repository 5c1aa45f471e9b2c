"""Who may do what: replicated state of access control."""
