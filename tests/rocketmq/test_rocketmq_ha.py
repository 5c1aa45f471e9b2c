"""The HA protocol's two sides and the puts that wait for slaves: rules of RocketMQ 4.9, and peers
that lie."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import ConfigError, ProtocolError, Unavailable
from dledger.rocketmq.ha_protocol.group_transfer_service import (
    BrokerRole,
    GroupTransferService,
    HAStatus,
)
from dledger.rocketmq.ha_protocol.ha_client import HAClient
from dledger.rocketmq.ha_protocol.ha_connection import NEVER, HAConnection, TransferFrame
from dledger.rocketmq.ha_protocol.messages import MOST_FRAME, HASettings

FILE = 1 << 10
SMALL = HASettings(mapped_file_size_commit_log=FILE, ha_transfer_batch_size=100)


def frame(offset: int, body: bytes = b"", size: int | None = None) -> bytes:
    return struct.pack(">qi", offset, len(body) if size is None else size) + body


def report(offset: int) -> bytes:
    return struct.pack(">q", offset)


def connection(asked: int, max_offset: int = 5_000) -> HAConnection:
    """A slave that has asked for the log from there, at 0 ms."""
    made = HAConnection(0, SMALL)
    made.read_side.receive(report(asked), max_offset, 0)
    return made


# --- the slave ------------------------------------------------------------------------------------


def pieces(client: HAClient, data: bytes, now: int = 0) -> list[tuple[int, bytes]]:
    return [(piece.offset, bytes(piece.data())) for piece in client.receive(data, now)]


def feed(client: HAClient, data: bytes, size: int) -> None:
    for at in range(0, len(data), size):
        client.receive(data[at : at + size], 0)


def test_slave_takes_log_bytes_between_headers_as_one_piece() -> None:
    client = HAClient(100, 0, settings=SMALL)
    assert pieces(client, frame(100, b"abc") + frame(103) + frame(103, b"de")) == [(100, b"abcde")]
    assert (client.max_offset, client.frames) == (105, 3)


def test_slave_splits_pieces_where_a_commit_log_file_ends() -> None:
    client = HAClient(FILE - 2, 0, settings=SMALL)
    stream = frame(FILE - 2, b"ab") + frame(FILE, b"c")
    assert pieces(client, stream) == [(FILE - 2, b"ab"), (FILE, b"c")]


@given(
    st.lists(st.integers(0, 300), max_size=12),
    st.lists(st.integers(1, 4_000), max_size=30),
    st.booleans(),
)
def test_slave_gets_the_same_log_however_its_bytes_are_split(
    sizes: list[int], cuts: list[int], fresh: bool
) -> None:
    start, stream, log = FILE * 3 if fresh else FILE * 3 + 17, b"", b""
    for size in sizes:
        at = start + len(log)
        body = bytes((at + n) % 251 for n in range(min(size, FILE - at % FILE)))
        stream, log = stream + frame(at, body), log + body
    client = HAClient(0 if fresh else start, 0, settings=SMALL)
    got, at = b"", 0
    for length in [*cuts, len(stream)]:
        for piece in client.receive(stream[at : at + length], 0):
            assert piece.offset == start + len(got)
            assert piece.offset // FILE == (piece.offset + piece.size - 1) // FILE
            got += piece.data()
        at += length
    assert got == log
    assert client.max_offset == (start + len(log) if sizes or not fresh else 0)
    assert not client.within_header


@pytest.mark.parametrize(
    ("own", "sent", "why"),
    [
        (100, frame(101, b"x"), "sends from 101 but this log ends at 100"),
        (100, frame(99), "sends from 99"),
        (100, frame(0), "sends from 0"),
        (0, frame(10, b"x"), "begins at 10"),
        (0, frame(-FILE), "begins at -1024"),
        (0, frame(FILE) + frame(FILE * 2, b"x"), "sends from 2048 but this log ends at 1024"),
        (100, frame(100, size=-1), "a frame of -1 bytes"),
        (100, frame(100, size=MOST_FRAME + 1), "a frame of 4194293 bytes"),
        (100, frame(100, size=2**31 - 1), "a frame of 2147483647 bytes"),
        (FILE - 1, frame(FILE - 1, b"xy"), "over the end of a commit log file"),
        (2**63 - 100, frame(2**63 - 100, size=200), "over the end of a commit log file"),
    ],
)
def test_slave_refuses_a_master_that_lies(own: int, sent: bytes, why: str) -> None:
    for size in (len(sent), 1):
        with pytest.raises(ProtocolError, match=why):
            feed(HAClient(own, 0, settings=SMALL), sent, size)


@given(st.integers(0, 2**40), st.lists(st.binary(max_size=60), max_size=20))
def test_slave_takes_any_bytes_or_refuses_them_and_keeps_at_most_a_header(
    own: int, chunks: list[bytes]
) -> None:
    client = HAClient(own, 0, settings=SMALL)
    got = own
    try:
        for chunk in chunks:
            for piece in client.receive(chunk, 0):
                assert own == 0 or piece.offset == got
                assert 0 < piece.size <= len(chunk)
                own, got = piece.offset, piece.offset + piece.size
            assert len(client._head) < 12
    except ProtocolError:
        pass


def test_slave_keeps_half_a_header_until_the_rest_comes() -> None:
    client = HAClient(100, 0, settings=SMALL)
    assert pieces(client, frame(100, b"x")[:7]) == []
    assert client.within_header
    assert pieces(client, frame(100, b"x")[7:]) == [(100, b"x")]


def test_slave_reports_at_once_then_what_is_durable_then_each_interval() -> None:
    client = HAClient(100, 0, settings=SMALL)
    assert client.report(0) == report(100)
    client.receive(frame(100, b"abc"), 10)
    assert client.report(10) == b""  # received is not durable
    client.flushed(102)
    assert client.report(20) == report(102)
    assert client.report(20) == b""
    assert client.deadline() == 5_020
    assert client.report(5_019) == b""
    assert client.report(5_020) == report(102)


def test_slave_never_reports_what_it_has_not_received() -> None:
    with pytest.raises(ValueError, match="received only up to 100"):
        HAClient(100, 0, settings=SMALL).flushed(101)


def test_slave_without_a_log_reports_0_until_it_has_a_byte() -> None:
    client = HAClient(0, 0, settings=SMALL)
    assert client.report(0) == report(0)
    client.receive(frame(FILE * 2), 1)
    assert client.max_offset == FILE * 2
    assert client.report(5_000) == report(0)
    client.receive(frame(FILE * 2, b"x"), 1)
    client.flushed(FILE * 2 + 1)
    assert client.report(5_001) == report(FILE * 2 + 1)


def test_slave_gives_a_silent_master_up_even_if_half_headers_trickle() -> None:
    client = HAClient(100, 0, settings=SMALL)
    client.report(0)
    client.receive(frame(100), 4_000)
    client.receive(frame(100)[:5], 10_000)
    client.report(21_000)
    client.check(23_999)
    assert client.deadline() == 24_000
    with pytest.raises(Unavailable, match="nothing for 20 s"):
        client.check(24_000)


# --- the master -----------------------------------------------------------------------------------


def test_master_is_mute_until_the_first_report() -> None:
    made = HAConnection(0, SMALL)
    assert made.write_side.transfer(0, 5_000, 10_000, 60_000) == []
    assert (made.read_side.deadline(), made.write_side.deadline()) == (20_000, NEVER)
    made.read_side.receive(report(-1), 5_000, 1)
    assert made.write_side.transfer(0, 5_000, 10_000, 60_000) == []


def test_master_starts_an_empty_slave_at_its_last_file() -> None:
    assert connection(0).write_side.transfer(0, 5_000, 10_000, 0)[0] == TransferFrame(4_096, 100)
    assert connection(0, 4_096).write_side.transfer(0, 4_096, 10_000, 0) == []
    assert connection(0, 300).write_side.transfer(0, 300, 10_000, 0)[0] == TransferFrame(0, 100)


def test_master_starts_where_the_slave_asks_even_inside_a_message() -> None:
    assert connection(10).write_side.transfer(0, 5_000, 10_000, 0)[0] == TransferFrame(10, 100)


@given(st.integers(1, 6_000), st.integers(0, 6_000), st.integers(0, 3_000))
def test_master_sends_batches_without_gap_that_keep_to_files(
    asked: int, more: int, room: int
) -> None:
    made = connection(asked, asked + more)
    sent = made.write_side.transfer(0, asked + more, room, 0)
    at = asked
    for one in sent:
        assert one.offset == at
        assert 0 < one.size <= 100
        assert one.offset // FILE == (one.offset + one.size - 1) // FILE
        at += one.size
    assert at == asked + min(more, room)


def test_master_sends_a_heartbeat_after_an_interval_without_data() -> None:
    side = connection(5_000).write_side
    assert side.deadline() == 5_000
    assert side.transfer(0, 5_000, 100, 4_999) == []
    assert side.transfer(0, 5_000, 100, 5_000) == [TransferFrame(5_000, 0)]
    assert side.transfer(0, 5_010, 100, 6_000) == [TransferFrame(5_000, 10)]
    assert side.deadline() == 11_000


def test_slave_that_asks_for_deleted_bytes_gets_only_heartbeats() -> None:
    side = connection(10).write_side
    assert side.transfer(1_024, 5_000, 100, 4_000) == []
    assert side.transfer(1_024, 5_000, 100, 5_000) == [TransferFrame(10, 0)]


def test_master_takes_the_last_whole_report() -> None:
    made = connection(1_000)
    made.write_side.transfer(0, 5_000, 1_000, 0)
    reports = report(1_100) + report(1_300) + report(2_000)[:5]
    assert made.read_side.receive(reports, 5_000, 1) == 1_300
    assert made.read_side.receive(report(2_000)[5:], 5_000, 1) == 2_000
    assert made.slave_ack_offset == 2_000


@pytest.mark.parametrize(
    ("first", "then", "why"),
    [
        (-1, 5_001, "behind the end of this log at 5000"),
        (0, 99_999_999, "behind the end of this log at 5000"),
        (10, 99_999_999, "behind the end of this log at 5000"),
        (1_000, 1_501, "only the log up to 1500 was sent"),
        (-1, -5, "offset -5"),
    ],
)
def test_master_refuses_a_report_that_cannot_be_first_or_later(
    first: int, then: int, why: str
) -> None:
    made = connection(first)
    made.write_side.transfer(0, 5_000, 500, 0)
    with pytest.raises(ProtocolError, match=why):
        made.read_side.receive(report(then), 5_000, 0)


def test_first_report_acknowledges_nothing() -> None:
    """A real 4.9.7 master answers SEND_OK to puts after a made-up one."""
    made = HAConnection(0, SMALL)
    assert made.read_side.receive(report(5_000), 5_000, 0) == -1
    assert made.read_side.receive(report(5_000), 5_000, 0) == -1
    made.write_side.transfer(0, 5_100, 1_000, 0)
    assert made.read_side.receive(report(5_050), 5_100, 0) == 5_050


def test_report_below_the_start_of_an_empty_slave_acknowledges_nothing() -> None:
    made = connection(0)
    made.write_side.transfer(0, 5_000, 1_000, 0)
    assert made.read_side.receive(report(3_000), 5_000, 0) == -1


def test_master_gives_a_silent_slave_up() -> None:
    made = connection(5_000)
    made.read_side.receive(report(5_000), 5_000, 3_000)
    made.read_side.receive(report(5_000)[:4], 5_000, 20_000)  # half a report is none
    made.read_side.check(22_999)
    with pytest.raises(Unavailable, match="nothing for 20 s"):
        made.read_side.check(23_000)


@given(
    st.lists(st.integers(1_000, 1_500), min_size=1, max_size=20),
    st.lists(st.integers(1, 20), max_size=40),
)
def test_master_hears_the_same_however_reports_are_split(
    offsets: list[int], cuts: list[int]
) -> None:
    made = connection(1_000)
    made.write_side.transfer(0, 5_000, 500, 0)
    stream, at, last = b"".join(map(report, offsets)), 0, -1
    for length in [*cuts, len(stream)]:
        heard = made.read_side.receive(stream[at : at + length], 5_000, 0)
        last = heard if at // 8 < min(len(stream), at + length) // 8 else last
        at += length
    assert made.slave_ack_offset == offsets[-1]
    assert last == (offsets[-1] if offsets[-1] > 1_000 else -1)


# --- puts that wait -------------------------------------------------------------------------------


def sync_master() -> GroupTransferService:
    return GroupTransferService(
        BrokerRole.SYNC_MASTER, HASettings(slave_timeout=3_000, ha_slave_fallbehind_max=500)
    )


def test_put_on_a_sync_master_is_ok_once_one_slave_has_it() -> None:
    service = sync_master()
    first, second = service.put_request(100, [0, 0], 0), service.put_request(200, [0], 10)
    assert (first.status, second.status, service.deadline()) == (None, None, 3_000)
    assert service.notify_transfer_some(99) == []
    assert service.notify_transfer_some(150) == [first]
    assert service.notify_transfer_some(120) == []  # it only grows
    assert service.push2_slave_max_offset == 150
    assert (first.status, second.status, service.deadline()) == (HAStatus.PUT_OK, None, 3_010)
    assert service.put_request(150, [0], 0).status is HAStatus.PUT_OK


def test_put_of_what_was_never_sent_to_a_slave_waits_for_another() -> None:
    """One without a log gets the master's last file only."""
    service = sync_master()
    first, second, third = (service.put_request(end, [0], 0) for end in (90, 100, 200))
    assert service.notify_transfer_some(200, 100) == [third]
    assert (first.status, second.status, len(service)) == (None, None, 2)
    assert service.notify_transfer_some(95, 50) == [first]
    assert service.expire(3_000) == [second]


def test_put_that_no_slave_acknowledges_ends_with_flush_slave_timeout() -> None:
    service = sync_master()
    first, second = service.put_request(100, [0], 0), service.put_request(200, [0], 10)
    assert service.expire(2_999) == []
    assert service.expire(3_000) == [first]
    assert first.status is HAStatus.FLUSH_SLAVE_TIMEOUT
    assert service.notify_transfer_some(200) == [second]
    assert (len(service), service.deadline()) == (0, None)


def test_put_without_a_slave_that_keeps_up_ends_at_once() -> None:
    service = sync_master()
    assert service.put_request(100, [], 0).status is HAStatus.SLAVE_NOT_AVAILABLE
    # connected, and has not reported yet: it waits
    assert service.put_request(499, [-1], 0).status is None
    assert service.put_request(500, [-1], 0).status is HAStatus.SLAVE_NOT_AVAILABLE
    assert service.put_request(1_000, [501, 3], 0).status is None
    assert service.put_request(1_000, [500, 3], 0).status is HAStatus.SLAVE_NOT_AVAILABLE


def test_put_waits_for_no_slave_on_an_async_master_or_on_request() -> None:
    """The message itself may say that its put waits for no slave."""
    asynchronous = GroupTransferService(BrokerRole.ASYNC_MASTER)
    assert asynchronous.put_request(100, [], 0).status is HAStatus.PUT_OK
    assert sync_master().put_request(100, [], 0, wait_store_msg_ok=False).status is HAStatus.PUT_OK


@given(
    st.lists(st.tuples(st.sampled_from(["put", "ack", "later"]), st.integers(0, 400)), max_size=60)
)
def test_each_waiting_put_is_decided_once_and_rightly(steps: list[tuple[str, int]]) -> None:
    service, now, acknowledged = sync_master(), 0, 0
    waiting = []
    for step, number in steps:
        decided = []
        if step == "put":
            request = service.put_request(number, [0], now)
            if request.status is None:
                waiting.append(request)
                assert number > acknowledged
            else:
                assert (request.status is HAStatus.PUT_OK) == (number <= acknowledged)
        elif step == "ack":
            acknowledged = max(acknowledged, number)
            decided = service.notify_transfer_some(number)
            assert set(decided) == {r for r in waiting if r.next_offset <= acknowledged}
        else:
            now += number * 10
            decided = service.expire(now)
            assert set(decided) == {r for r in waiting if r.deadline <= now}
        waiting = [r for r in waiting if r not in decided]
        assert all(r.status is None for r in waiting)
        assert all(r.status is not None for r in decided)
        assert service.deadline() == min((r.deadline for r in waiting), default=None)
        assert len(service) == len(waiting)


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="ha_housekeeping_interval=0"):
        HASettings(ha_housekeeping_interval=0)
    with pytest.raises(ConfigError, match="a slave takes 4194292"):
        HASettings(ha_transfer_batch_size=MOST_FRAME + 1)


def test_late_flush_does_not_lower_the_reported_durable_offset() -> None:
    slave = HAClient(0, 0, settings=SMALL)
    slave.receive(frame(0, bytes(100)), 0)
    slave.flushed(100)
    assert slave.report(0) == report(100)
    slave.flushed(40)
    assert slave.report(SMALL.ha_send_heartbeat_interval) == report(100)
