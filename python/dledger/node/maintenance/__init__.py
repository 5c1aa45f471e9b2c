"""Work beside requests: time-outs, retention, repair and the scrub."""
