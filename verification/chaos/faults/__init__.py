"""Faults, by kind. Each fault is done to a scene, undone, and says how often it really bit."""
