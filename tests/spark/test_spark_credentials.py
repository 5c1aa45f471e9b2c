"""Spark as a user of the group: whoever looks at its plans, logs and files sees no password."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from dledger.testing import InProcessGroup
from tests.permit_all import PERMIT_ALL

pytestmark = pytest.mark.spark

PASSWORD = "down-the-rabbit-hole"
JOB = """
import json, os, sys
from pathlib import Path
from examples.session import spark_session
from pyspark.sql import SparkSession

options, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
settings = {
    "spark.eventLog.enabled": "true", "spark.eventLog.dir": (folder / "events").as_uri(),
    "spark.eventLog.compress": "false", "spark.log.level": "INFO",
    "spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.ui.enabled": "true",
    "spark.ui.port": "0", "spark.driver.host": "127.0.0.1",
}
spark = spark_session("credentials", SparkSession.builder.master("local[2]"), **settings)
frame = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
frame.write.format("dledger").options(**options, topic="orders", createTopic=True).mode(
    "append"
).save()
read = spark.read.format("dledger").options(**options, subscribe="orders").load()
read.explain("extended")
read.explain("formatted")
print(read._jdf.queryExecution().toString(), read._jdf.queryExecution().debug().toString())
assert read.count() == 100
stream = spark.readStream.format("dledger").options(**options, subscribe="orders")
stream = stream.option("startingOffsets", "earliest").load()
query = stream.writeStream.format("dledger").options(**options, topic="copy", createTopic=True)
query = query.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
query = query.start()
query.awaitTermination()
query.explain(True)
print(query.recentProgress, query.lastProgress)
copy = spark.read.format("dledger").options(**options, subscribe="copy").load()
assert copy.count() == 100
import urllib.request
for page in ("SQL/", "jobs/", "environment/", "StreamingQuery/"):
    print(urllib.request.urlopen(f"{spark.sparkContext.uiWebUrl}/{page}").read().decode())
api = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"
print(urllib.request.urlopen(f"{api}/sql?details=true&planDescription=true").read().decode())
try:
    spark.read.format("dledger").options(**options, subscribe="nowhere").load().collect()
except Exception as error:
    print(error)
wrong = {**options, "dledger.credentials": sys.argv[3]}
try:
    spark.read.format("dledger").options(**wrong, subscribe="orders").load().collect()
except Exception as error:
    print("REFUSED", error)
spark.stop()
print("DONE")
"""


@pytest.fixture
def options(tmp_path: Path, issue: Callable[..., dict[str, str]]) -> Iterator[dict[str, str]]:
    """Of a group under TLS, and the user alice of it."""
    authority = trustme.CA()
    with InProcessGroup(1, **issue(authority=authority)) as group:
        files = issue(authority=authority, nodes=())
        admin = group.client(**files)
        admin.add_acls(PERMIT_ALL)
        admin.add_user("alice", PASSWORD)
        path = private(tmp_path / "alice", f"user=alice\npassword={PASSWORD}")
        yield {
            "dledger.bootstrap.servers": group.bootstrap_servers,
            "dledger.tls.ca": files["tls_ca"],
            "dledger.credentials": str(path),
        }


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_jobs_of_a_user_show_the_password_nowhere(options: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "job"
    (folder / "events").mkdir(parents=True)
    wrong = private(tmp_path / "wrong", "user=alice\npassword=up-the-rabbit-hole")
    command: list[Any] = [sys.executable, "-c", JOB, json.dumps(options), folder, wrong]
    root = Path(__file__).resolve().parents[2]
    found = {"PYTHONPATH": os.pathsep.join([str(root), *filter(None, sys.path)])}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=root, env={**os.environ, **found}
    )
    assert "DONE" in done.stdout, done.stdout[-2000:] + done.stderr[-4000:]
    assert "no such user, or this is not its password" in done.stdout.partition("REFUSED")[2]
    kept = [path for path in folder.rglob("*") if path.is_file()]
    events = b"".join(path.read_bytes() for path in kept if "events" in str(path))
    assert b"SparkListenerSQLExecutionStart" in events
    assert any("checkpoint" in str(path) for path in kept)
    texts = [done.stdout.encode(), done.stderr.encode(), *(path.read_bytes() for path in kept)]
    assert not any(b"the-rabbit-hole" in text for text in texts)
