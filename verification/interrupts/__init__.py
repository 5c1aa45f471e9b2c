"""Clients whose calls are interrupted by signals and cancelled at any point: what they took and
told still holds."""
