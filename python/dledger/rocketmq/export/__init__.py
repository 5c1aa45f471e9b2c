"""Records, messages and logs written as a store of RocketMQ or DLedger."""
