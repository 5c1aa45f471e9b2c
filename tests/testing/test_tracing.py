"""Spans and trace context, by a program that has a tracer provider and by one that has none."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

WITH_PROVIDER = """
import json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

import asyncio
from dledger.client import AsyncClient
from dledger.testing import InProcessGroup
from dledger.tracing import context_of

def span_in(headers):
    span = trace.get_current_span(context_of(headers))
    return f"{span.get_span_context().span_id:016x}"

with InProcessGroup() as group, group.client() as client:
    client.create_topic("orders")
    client.append("orders", b"without a span")
    with trace.get_tracer("program").start_as_current_span("request"):
        client.append("orders", b"one", key=b"k")
        client.append("orders", [b"two", b"three"], headers=[("mine", b"1")])
        client.append("orders", b"four", headers=[("traceparent", b"kept")])
        with client.producer("orders") as producer:
            producer.append(b"five").result()
            producer.append([b"six"]).result()

        async def story():
            async with AsyncClient(group.bootstrap_servers) as client:
                await client.append("orders", b"seven")
                async with await client.producer("orders") as producer:
                    await (await producer.append(b"eight"))

        asyncio.run(story())
    records = client.table("orders").to_pylist()
found = exporter.get_finished_spans()
print(json.dumps({
    "spans": [
        {
            "name": span.name,
            "id": f"{span.context.span_id:016x}",
            "trace": f"{span.context.trace_id:032x}",
            "parent": f"{span.parent.span_id:016x}" if span.parent else None,
            "attributes": dict(span.attributes),
            "ns": [span.start_time, span.end_time],
        }
        for span in found
    ],
    "records": [
        {
            "value": one["value"].decode(),
            "headers": {h["key"]: h["value"].decode() for h in one["headers"] or ()},
            "span": span_in([(h["key"], h["value"]) for h in one["headers"] or ()]),
        }
        for one in records
    ],
}))
"""

WITHOUT_PROVIDER = """
import sys
if "api" in sys.argv:
    import opentelemetry.trace
from dledger.testing import InProcessGroup
with InProcessGroup() as group, group.client() as client:
    client.create_topic("orders")
    client.append("orders", b"one")
    with client.producer("orders") as producer:
        producer.append(b"two").result()
    headers = client.table("orders").column("headers").to_pylist()
print(headers, "opentelemetry.sdk" in sys.modules, "opentelemetry.trace" in sys.modules)
"""


def ran(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    return _out(subprocess.run(command, capture_output=True, text=True, timeout=120))


def _out(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_appends_carry_their_trace_and_nodes_tell_theirs() -> None:
    told: dict[str, Any] = json.loads(ran(WITH_PROVIDER))
    spans, by_id = told["spans"], {span["id"]: span for span in told["spans"]}
    (request,) = [span for span in spans if span["name"] == "request"]
    appends = [span for span in spans if span["name"] == "orders append"]
    assert len(appends) == 7, "none for the append without a span"
    assert {span["parent"] for span in appends} == {request["id"]}
    assert {span["trace"] for span in appends} == {request["trace"]}
    assert all(begin < end for begin, end in (span["ns"] for span in appends))

    records = {record["value"]: record for record in told["records"]}
    assert records["without a span"]["headers"] == {}
    assert records["four"]["headers"] == {"traceparent": "kept"}
    assert records["two"]["headers"]["mine"] == "1"
    assert records["two"]["span"] == records["three"]["span"]
    traced = ("one", "two", "five", "six", "seven", "eight")
    assert len({records[value]["span"] for value in traced}) == 6
    for value in traced:
        assert by_id[records[value]["span"]]["name"] == "orders append"
        assert request["trace"] in records[value]["headers"]["traceparent"]

    of_nodes = [span for span in spans if span["name"] == "append"]
    assert {span["attributes"]["dledger.node"] for span in of_nodes} >= {"n0"}
    for name in ("fsync", "commit"):
        below = [span for span in spans if span["name"] == name]
        assert below
        assert all(by_id[span["parent"]]["name"] == "append" for span in below)
    entries = sum(
        span["attributes"]["dledger.entries"]
        for span in of_nodes
        if span["attributes"]["dledger.node"] == "n0"
    )
    assert entries >= len(records)


def test_without_a_provider_nothing_is_loaded_and_no_header_written() -> None:
    assert ran(WITHOUT_PROVIDER) == "[None, None] False False\n"
    assert ran(WITHOUT_PROVIDER, "api") == "[None, None] False True\n"
