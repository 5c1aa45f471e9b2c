"""Planted bugs: does the simulator find what it is there to find?"""
