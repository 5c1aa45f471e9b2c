"""What a RocketMQ master and its slaves say to one another, without sockets and clocks."""
