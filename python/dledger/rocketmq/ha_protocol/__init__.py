"""The messages of a RocketMQ master and its slaves, without sockets and clocks."""
