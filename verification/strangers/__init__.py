"""Everybody who may reach a node and means no good, against real nodes: ``make strangers``."""
