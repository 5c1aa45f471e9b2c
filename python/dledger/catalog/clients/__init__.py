"""What is kept of clients: producers, transactions, writers and consumer groups."""
