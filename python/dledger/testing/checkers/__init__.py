"""What clients saw, written down, and the checkers that judge it. Pure: no clock, network, disk or
dice."""
