"""Attackers that can reach a node, against real nodes: ``make strangers``."""
