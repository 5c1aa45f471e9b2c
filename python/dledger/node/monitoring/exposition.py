"""Metrics as text, by prometheus-client, which is loaded here alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dledger.errors import ConfigError
from dledger.node.meters import Histogram
from dledger.node.monitoring.families import FAMILIES, Family
from dledger.node.monitoring.values import Values, buckets_of


class Exposition:
    """A registry with one node's metrics and those of its process.

    Args:
        values: those of now.

    Raises:
        ConfigError: the extra is not installed.
    """

    def __init__(self, values: Callable[[], Values]) -> None:
        try:
            from prometheus_client import CollectorRegistry, ProcessCollector, core, exposition
        except ImportError as error:
            raise ConfigError(
                "metrics_port needs prometheus-client: pip install 'dledger[metrics]', or leave "
                "metrics_port out"
            ) from error
        self._values = values
        self._core: Any = core
        self._choose: Any = exposition.choose_encoder
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self, accept: str) -> tuple[bytes, str]:
        """All metrics of now, and the type of their text, by what the asker accepts."""
        encoder, content_type = self._choose(accept)
        # names that every reader takes need no other form, and to look at each letter takes longer
        # than all the rest
        text: bytes = encoder(self._registry, escaping="allow-utf-8")
        return text, content_type

    def collect(self) -> Iterable[Any]:
        """For the registry: each metric that has a value."""
        values = self._values()
        assert values.keys() <= FAMILIES.keys(), values.keys() - FAMILIES.keys()
        for family in FAMILIES.values():
            value = values.get(family.name)
            if value is not None and value != {}:
                yield self._family(family, value)

    def _family(self, family: Family, value: float | dict[str, float] | Histogram) -> Any:
        core = self._core
        if isinstance(value, Histogram):
            made = core.HistogramMetricFamily(family.name, family.help)
            made.add_metric((), *buckets_of(value))
            return made
        kinds = {"gauge": core.GaugeMetricFamily, "counter": core.CounterMetricFamily}
        labels = (family.label,) if family.label else ()
        made = kinds[family.kind](family.name, family.help, labels=labels)
        if isinstance(value, dict):
            for label, one in value.items():
                made.add_metric((label,), one)
        else:
            made.add_metric((), value)
        return made
