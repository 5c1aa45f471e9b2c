"""Batch reads of the files of a RocketMQ store, or of a node of Java's DLedger."""
