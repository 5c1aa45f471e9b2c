"""RocketMQ's bytes: messages, commit log, consume queue, index, checkpoint, configuration."""
