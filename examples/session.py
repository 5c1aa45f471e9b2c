"""The Spark session that the examples share: small, quiet, and quick with Python data sources."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from dledger.datasource.java import ensure_java


def spark_session(
    name: str, builder: SparkSession.Builder | None = None, /, **settings: str
) -> SparkSession:
    """A session on two cores of this machine, or of a ``builder`` that says another place.

    Nothing in it is needed to use dledger, but two settings are worth taking along: Spark's workers
    must run the Python that dledger is installed in, and the unix socket takes some 40 ms off every
    micro-batch of a Python source.
    """
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    defaults = {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    builder = (builder or SparkSession.builder.master("local[2]")).appName(name)
    for key, value in {**defaults, **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
