"""Master and slaves together, over links that split, delay and cut: a slave's log is always the
master's, and no put is said to be on a slave that has it not."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dledger.errors import Unavailable
from dledger.rocketmq.ha_protocol.group_transfer_service import (
    BrokerRole,
    GroupCommitRequest,
    GroupTransferService,
    HAStatus,
)
from dledger.rocketmq.ha_protocol.ha_client import HAClient
from dledger.rocketmq.ha_protocol.ha_connection import HAConnection
from dledger.rocketmq.ha_protocol.messages import HASettings

FILE = 64
SMALL = HASettings(mapped_file_size_commit_log=FILE, ha_transfer_batch_size=20)


def log_bytes(begin: int, size: int) -> bytes:
    return bytes((at * 7 + at // FILE) % 251 for at in range(begin, begin + size))


class Slave:
    """A log, what of it is durable, and perhaps a connection."""

    def __init__(self) -> None:
        self.start = 0
        self.log = bytearray()
        self.durable = 0
        """Bytes of the log that outlive a crash."""
        self.client: HAClient | None = None
        self.connection: HAConnection | None = None
        self.up = b""
        self.down = b""

    @property
    def end(self) -> int:
        return self.start + len(self.log) if self.log else 0

    def cut(self) -> None:
        """The connection ends; what was under way is lost."""
        self.client = self.connection = None
        self.up = self.down = b""


class MasterAndSlaves(RuleBasedStateMachine):
    """Bytes of the master's log are a function of their offset."""

    @initialize(old=st.integers(0, 200))
    def begin(self, old: int) -> None:
        self.now = 0
        self.end = old
        self.slaves = [Slave(), Slave()]
        self.service = GroupTransferService(BrokerRole.SYNC_MASTER, SMALL)
        self.waiting: list[GroupCommitRequest] = []

    which = st.integers(0, 1)

    @rule(size=st.integers(1, 50))
    def put(self, size: int) -> None:
        self.end += size
        offsets = [s.connection.slave_ack_offset for s in self.slaves if s.connection]
        request = self.service.put_request(self.end, offsets, self.now)
        if request.status is None:
            self.waiting.append(request)
        else:
            assert request.status is HAStatus.SLAVE_NOT_AVAILABLE
            assert not offsets

    @rule(which=which)
    def connect(self, which: int) -> None:
        slave = self.slaves[which]
        slave.cut()
        slave.durable = len(slave.log)  # flushed first
        slave.client = HAClient(slave.end, self.now, settings=SMALL)
        slave.connection = HAConnection(self.now, SMALL)

    @rule(which=which)
    def cut(self, which: int) -> None:
        self.slaves[which].cut()

    @rule(which=which)
    def crash(self, which: int) -> None:
        slave = self.slaves[which]
        slave.cut()
        del slave.log[slave.durable :]

    @rule(which=which, room=st.integers(1, 100))
    def send(self, which: int, room: int) -> None:
        slave = self.slaves[which]
        if slave.connection:
            for frame in slave.connection.write_side.transfer(0, self.end, room, self.now):
                slave.down += frame.header() + log_bytes(frame.offset, frame.size)

    @rule(which=which, size=st.integers(1, 200))
    def receive(self, which: int, size: int) -> None:
        slave = self.slaves[which]
        if slave.client:
            for piece in slave.client.receive(slave.down[:size], self.now):
                if not slave.log:
                    slave.start = piece.offset
                assert piece.offset == slave.start + len(slave.log)
                slave.log += piece.data()
            slave.down = slave.down[size:]

    @rule(which=which, share=st.integers(1, 2))
    def flush(self, which: int, share: int) -> None:
        slave = self.slaves[which]
        slave.durable = max(slave.durable, len(slave.log) // share)
        if slave.client and slave.durable:
            slave.client.flushed(slave.start + slave.durable)

    @rule(which=which)
    def report(self, which: int) -> None:
        slave = self.slaves[which]
        if slave.client:
            slave.up += slave.client.report(self.now)

    @rule(which=which, size=st.integers(1, 30))
    def hear(self, which: int, size: int) -> None:
        slave = self.slaves[which]
        if slave.connection and slave.up:
            acknowledged = slave.connection.read_side.receive(slave.up[:size], self.end, self.now)
            slave.up = slave.up[size:]
            begin = slave.connection.write_side.begin
            for request in self.service.notify_transfer_some(acknowledged, begin):
                assert request.status is HAStatus.PUT_OK
                end = request.next_offset
                assert any(s.start < end <= s.start + s.durable for s in self.slaves)

    @rule(ms=st.sampled_from([10, 1_000, 5_000, 20_000]))
    def later(self, ms: int) -> None:
        self.now += ms
        for request in self.service.expire(self.now):
            assert request.deadline <= self.now
        for slave in self.slaves:
            try:
                if slave.client and slave.connection:
                    slave.client.check(self.now)
                    slave.connection.read_side.check(self.now)
            except Unavailable:
                slave.cut()

    @precondition(lambda self: self.end)
    @rule(which=which)
    def catch_up(self, which: int) -> None:
        """With a sound link, a slave has all that the master has."""
        self.connect(which)
        for _ in range(2 + self.end // 20):
            self.report(which)
            self.hear(which, 1_000)
            self.send(which, 1_000)
            self.receive(which, 1 << 20)
            self.flush(which, 1)
        slave = self.slaves[which]
        assert slave.end in (self.end, 0)
        # an empty slave of a master whose last file is empty
        assert slave.end or not self.end % FILE

    @invariant()
    def every_slave_has_a_part_of_the_masters_log(self) -> None:
        for slave in self.slaves if hasattr(self, "slaves") else []:
            assert slave.log == log_bytes(slave.start, len(slave.log))
            assert slave.start % FILE == 0
            assert slave.end <= self.end


TestMasterAndSlaves = MasterAndSlaves.TestCase
TestMasterAndSlaves.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
