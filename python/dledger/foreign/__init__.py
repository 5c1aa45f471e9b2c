"""Stores that RocketMQ or Java's DLedger wrote, read from their files alone: on a local disk or at any fsspec URL."""
