"""The page of evidence: the campaigns against each promise, and their results."""
