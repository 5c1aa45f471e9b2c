"""Consume queues and index made of the commit log."""
