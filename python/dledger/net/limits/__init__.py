"""The limits of connections: turns, bytes on the way in and out, and places."""
