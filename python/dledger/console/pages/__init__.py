"""The pages: each function answers one request."""
