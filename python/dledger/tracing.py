"""Spans and trace context by OpenTelemetry's API, for programs that have set a tracer provider.

Nothing of it is loaded here: a program with a provider has loaded it. The caller looks first
whether `API` is in ``sys.modules``, so that others pay for one look-up in a dict.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from dledger.release import RELEASE

API: Final = "opentelemetry.trace"
TRACEPARENT: Final = "traceparent"
"""The header with the trace context of a record's producer (W3C Trace Context)."""
_TRACE_HEADERS: Final = (TRACEPARENT, "tracestate")


def tracer() -> Any | None:
    """The tracer of a program that has set a provider (an `opentelemetry.trace.Tracer`)."""
    api: Any = sys.modules.get(API)
    if api is None or isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        return None
    return api.get_tracer("dledger", RELEASE)


def span(name: str, **attributes: str | int) -> AbstractContextManager[Any]:
    """The current span for what is done in its block; none without a provider."""
    found = tracer() if API in sys.modules else None
    if found is None:
        return nullcontext()
    named = {f"dledger.{key}": value for key, value in attributes.items()}
    context: AbstractContextManager[Any] = found.start_as_current_span(name, attributes=named)
    return context


class AppendSpan:
    """The span of an append, from the call to its answer.

    Attributes:
        headers: those of the caller, and the trace context.
    """

    def __init__(self, span: Any, headers: Any) -> None:
        self._span = span
        self.headers = headers

    def __enter__(self) -> AppendSpan:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._end(error)

    def follow(self, future: Any) -> None:
        """It ends with the future."""
        future.add_done_callback(
            lambda done: self._end(None if done.cancelled() else done.exception())
        )

    def _end(self, error: BaseException | None) -> None:
        if error is not None:
            self._span.record_exception(error)
            self._span.set_status(sys.modules[API].StatusCode.ERROR, str(error))
        self._span.end()


def begin_append(topic: str, headers: Any) -> AppendSpan | None:
    """The span of an append to a topic, below the caller's current one; None: there is none, or no
    provider. Headers that are an Arrow array, or have a trace context, stay as they are."""
    found, api = tracer(), sys.modules[API]
    if found is None or not api.get_current_span().get_span_context().is_valid:
        return None
    begun = found.start_span(
        f"{topic} append",
        kind=api.SpanKind.PRODUCER,
        attributes={"messaging.system": "dledger", "messaging.destination.name": topic},
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, api.set_span_in_context(begun))
    more = [(name, value.encode()) for name, value in carrier.items()]
    return AppendSpan(begun, _with(headers, more))


def _with(headers: Any, more: list[tuple[str, bytes]]) -> Any:
    if headers is None:
        return more
    if not isinstance(headers, list | tuple):
        return headers
    if all(isinstance(pair, tuple) for pair in headers):
        known = any(name == TRACEPARENT for name, _ in headers)
        return headers if known else [*headers, *more]
    return [_with(own, more) for own in headers]  # of each record


def context_of(headers: Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]) -> Any:
    """The trace context in a record's headers, an `opentelemetry.context.Context`: the parent of
    what a consumer does with it. Needs ``dledger[otel]``."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    pairs = headers.items() if isinstance(headers, Mapping) else headers
    carrier = {
        name: value.decode("latin-1")
        for name, value in pairs
        if name in _TRACE_HEADERS and value is not None
    }
    return TraceContextTextMapPropagator().extract(carrier)
