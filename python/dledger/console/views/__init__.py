"""Rows of the pages, made of what a group says. Pure."""
