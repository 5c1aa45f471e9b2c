"""``dledger rocketmq``: the stores of RocketMQ brokers, and brokers as master and slave."""
