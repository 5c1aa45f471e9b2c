"""``dledger backup`` and ``dledger restore``."""
