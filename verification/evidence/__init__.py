"""The page of evidence: what was run against which promise, and with what result."""
