"""The links to the other members, and the check of their connections: hello, secret,
enforcement."""
