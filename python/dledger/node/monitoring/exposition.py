"""Metrics as text, by prometheus-client, which is loaded here alone. Samples with labels are
written without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, Final

from dledger.errors import ConfigError
from dledger.node.meters import Histogram
from dledger.node.monitoring.families import FAMILIES, Family
from dledger.node.monitoring.values import Values, buckets_of

END: Final = b"# EOF\n"
"""Last line of a page in the format OpenMetrics; other formats have none."""


class Exposition:
    """The metrics of one node and those of its process.

    Args:
        values: those of now.

    Raises:
        ConfigError: the extra is not installed.
    """

    def __init__(self, values: Callable[[], Values]) -> None:
        try:
            from prometheus_client import ProcessCollector, core, exposition
        except ImportError as error:
            raise ConfigError(
                "metrics_port needs prometheus-client: pip install 'dledger[metrics]', or leave "
                "metrics_port out"
            ) from error
        self._values = values
        self._core: Any = core
        self._choose: Any = exposition.choose_encoder
        self._process = ProcessCollector(registry=None)

    def text(self, accept: str) -> tuple[bytes, str]:
        """All metrics of now, and the type of their text, by what the asker accepts."""
        encoder, content_type = self._choose(accept)

        def encoded(metrics: Iterable[Any]) -> bytes:
            # the names are those that every reader takes, so they need no other form; the encoder
            # would look at each of their letters
            source = SimpleNamespace(collect=lambda: metrics)
            text: bytes = encoder(source, escaping="allow-utf-8")
            return text

        values, page = self._values(), []
        assert values.keys() <= FAMILIES.keys(), values.keys() - FAMILIES.keys()
        for family in FAMILIES.values():
            value = values.get(family.name)
            if value is None or value == {}:
                continue
            page.append(encoded([self._family(family, value)]).removesuffix(END))
            if isinstance(value, dict):
                page.append(labelled_samples(family, value).encode())
        page.append(encoded(self._process.collect()))  # it ends the page
        return b"".join(page), content_type

    def _family(self, family: Family, value: float | dict[str, float] | Histogram) -> Any:
        """For the encoder; without its samples if these have labels: see `labelled_samples`."""
        core = self._core
        if isinstance(value, Histogram):
            made = core.HistogramMetricFamily(family.name, family.help)
            made.add_metric((), *buckets_of(value))
            return made
        kinds = {"gauge": core.GaugeMetricFamily, "counter": core.CounterMetricFamily}
        made = kinds[family.kind](family.name, family.help)
        if not isinstance(value, dict):
            made.add_metric((), value)
        return made


def labelled_samples(family: Family, values: dict[str, float]) -> str:
    """The samples of a family by label, one a line, as in all formats. The encoder would take ten
    times as long, and a node may have thousands of them."""
    start = f'{family.name}{{{family.label}="'
    return "".join(
        [f'{start}{escaped(label)}"}} {float(value)!r}\n' for label, value in values.items()]
    )


def escaped(label: str) -> str:
    """The value of a label, as it is between quotes."""
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
