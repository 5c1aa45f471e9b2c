"""``dledger import``: topics and consumer groups of Kafka, copied here."""
