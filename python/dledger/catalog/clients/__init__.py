"""The state of clients: producers, transactions, writers and consumer groups."""
