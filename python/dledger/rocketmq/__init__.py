"""RocketMQ's bytes: messages, commit log, consume queues, index, checkpoint, configuration. Bytes in, bytes out.

Two modules need Arrow and are not loaded by a node: ``columns`` (a whole file into Arrow columns) and ``compression``.
"""
