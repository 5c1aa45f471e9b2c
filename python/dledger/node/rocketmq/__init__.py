"""A group whose log is the commit log of a RocketMQ broker."""
