"""The parts of ``flights_demo.py``: the data, the queries, the probe, the screen, and the proof."""
