"""Who may use the console: hosts, origins, sessions, forms."""
