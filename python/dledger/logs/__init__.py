"""Log records of a node's process: their form, and how often one is repeated."""
