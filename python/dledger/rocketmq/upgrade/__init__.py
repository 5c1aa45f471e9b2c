"""An old plain commit log in front of a group."""
