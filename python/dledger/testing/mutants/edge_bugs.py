"""Bugs of clients, connections and frames."""

from __future__ import annotations

from typing import Final

from dledger.testing.mutants.plant import Mutant

EDGES: Final = (
    Mutant(
        "client-lost-is-definite", "D9 B23", "client.protocol.routing", "Call.lost",
        "self.maybe_done = True",
        "self.maybe_done = False",
        "a write whose answer was lost is called not written",
    ),
    Mutant(
        "client-new-number-for-a-retry", "B23", "client.protocol.in_flight_window", "Window.resume",
        "self.again.clear()",
        "for item in self.again:\n            item.sequence = -1\n        self.again.clear()",
        "a batch that is sent again gets another number, so it is not known for a repeat",
    ),
    Mutant(
        "client-unsequenced-retry", "B23", "client.protocol.appending", "append",
        "header = session.stamp(header, info.topic_id, at)",
        "header = bytes(header)",
        "appends carry no number, so one that is sent again is appended again",
    ),
    Mutant(
        "client-loses-what-was-sent", "B23", "client.protocol.in_flight_window", "Window.lost",
        "item.maybe = True",
        "item.maybe = False",
        "what was sent on a broken connection is called not written",
    ),
    Mutant(
        "client-reader-skips", "B25", "client.protocol.fetching", "Fetcher.take",
        "self.position = position",
        "self.position = position + (len(found) > 1)",
        "a reader that goes on skips a record",
    ),
    Mutant(
        "client-end-goes-back", "B1 B25", "client.protocol.seen_end_offsets", "behind",
        "if end < ends.get(at, 0):",
        "if end < -ends.get(at, 0):",
        "a client that has seen an end offset is shown a smaller one by a node that lags",
    ),
    Mutant(
        "client-checks-no-body", "D3 B7", "client.protocol.fetching", "Fetcher.take",
        "if batch.crc and crc32(body) != batch.crc:",
        "if batch.crc and len(body) != batch.size:",
        "a body that was damaged on its way is handed to the reader",
        "tests/client",
    ),
    Mutant(
        "net-answers-mixed-up", "B18", "net.connections.rpc", "Rpc.ask",
        "self._request_id = request_id = self._request_id % 0xFFFFFFFF + 1",
        "self._request_id = request_id = self._request_id % 2 + 1",
        "a late answer is taken for that of another request",
    ),
    Mutant(
        "link-closed-for-ever", "B35", "net.connections.peer", "PeerLink._begin",
        "if self._connection is not connection:  # else",
        "if connection is not None:  # else",
        "a link whose peer answers in the turn in which its time is over is never opened again",
        "tests/net/test_peer.py",
    ),
    Mutant(
        "wire-no-length-limit", "B36", "protocol.wire.framing", "parse_prefix",
        "if payload_len > limits.payload_bytes:",
        "if payload_len > limits.payload_bytes + (1 << 40):",
        "a frame may claim any length, and memory is taken for it",
        "tests/protocol/test_framing.py",
    ),
    Mutant(
        "wire-no-header-crc", "B36", "protocol.wire.framing", "check_crc",
        "if found != crc:",
        "if found < 0:",
        "a length that was damaged on its way is believed",
        "tests/protocol/test_framing.py",
    ),
    Mutant(
        "wire-payload-cut-short", "B36", "protocol.wire.framing", "FrameReader.received",
        "self._filled < len(self.large)",
        "self._filled + 1 < len(self.large)",
        "a large frame is handed on before its last byte is there",
        "tests/protocol/test_framing.py",
    ),
)
