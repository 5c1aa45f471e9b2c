"""The section of ``make bench`` beside a real Kafka, where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.__main__ import SECTIONS, UNASKED
from benchmarks.kafka_producing import JARS, kafka


def test_section_without_jars_names_the_command_that_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (None, str(tmp_path)):
        monkeypatch.delenv(JARS, raising=False)
        if folder is not None:
            monkeypatch.setenv(JARS, folder)
        with pytest.raises(SystemExit, match="make bench BENCH=kafka-producer"), kafka(tmp_path):
            pass


def test_sections_that_need_programs_of_others_run_only_when_named() -> None:
    assert {"brokers", "kafka-producer"} <= SECTIONS.keys() - set(UNASKED)
