"""Scrapes and probes of nodes that serve metrics."""

from __future__ import annotations

import asyncio
import ssl
import urllib.error
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from dledger.config import tls_files
from dledger.net.connections.tls import client_context


def context_of(files: dict[str, str]) -> ssl.SSLContext:
    """Of a client with these certificates, as `issue` gives them."""
    context = client_context(
        tls_files(**{name.removeprefix("tls_"): path for name, path in files.items()})
    )
    assert context is not None
    return context


def fetch(
    port: int, path: str, *, tls: ssl.SSLContext | None = None, **headers: str
) -> tuple[int, str, str]:
    """Status, type and text of an answer."""
    scheme = "http" if tls is None else "https"
    asked = urllib.request.Request(f"{scheme}://127.0.0.1:{port}{path}", headers=headers)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
    )
    try:
        with opener.open(asked, timeout=20) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


async def ask(node: Any, path: str, **headers: Any) -> tuple[int, str, str]:
    """`fetch` of a node on this loop, without the page of a moment ago."""
    node._monitor._pages = {}
    return await asyncio.to_thread(fetch, node.metrics_port, path, **headers)


async def samples(node: Any) -> dict[str, float]:
    """All samples of a node, by series as they are written: ``dledger_role{role="leader"}``."""
    status, _, text = await ask(node, "/metrics")
    assert status == 200, text
    return parsed(text)


def parsed(text: str) -> dict[str, float]:
    """The samples of a page by series."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            found[sample.name + (f"{{{labels}}}" if labels else "")] = sample.value
    return found
