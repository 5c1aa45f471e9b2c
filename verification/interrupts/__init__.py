"""Clients whose calls are interrupted by signals and cancelled at any point: their answers still
hold."""
