"""What a store's files say of one another: looked at, and not changed."""
