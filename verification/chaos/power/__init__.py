"""Power cuts: a disk that notes what no sync covers yet, and what becomes of that when the power
goes."""
