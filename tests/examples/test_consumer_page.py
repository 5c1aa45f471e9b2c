"""What docs/consumer.md shows works as it stands, with another address."""

from __future__ import annotations

import re
from pathlib import Path

from dledger.client import Client
from dledger.testing import InProcessGroup

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "consumer.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_snippets_of_the_page_run_one_behind_the_other() -> None:
    with InProcessGroup(replicas=1) as group, Client(group.bootstrap_servers) as client:
        client.create_topic("orders", 2)
        client.create_topic("invoices")
        for partition in range(2):
            client.append("orders", [b"1", b"2"], partition=partition)
        names: dict[str, object] = {}
        for text in SNIPPETS:
            runs = text.replace("127.0.0.1:7001", group.bootstrap_servers)
            # the first one goes on for ever
            runs = runs.replace(
                "record.key, record.value)\n", "record.key, record.value)\n        break\n"
            )
            exec(compile(runs, "docs/consumer.md", "exec"), names)
        assert client.end_offsets("invoices") == {0: 2}
        assert sorted(client.groups()) == ["billing", "billing-async", "copy", "flushing"]
        names["client"].close()  # type: ignore[attr-defined]
