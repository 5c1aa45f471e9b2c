"""Master and slave: sockets, clocks and disks for `dledger.rocketmq.ha_protocol`."""
