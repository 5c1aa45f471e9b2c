"""The links to the other members, and who is let in: hello, secret, enforcement."""
