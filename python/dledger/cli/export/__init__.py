"""``dledger export``: stores for RocketMQ and DLedger from a topic, or from a stopped node."""
