"""What a program with Spark calls itself: a session on this machine, Spark from other threads than
the one that made the session, and reads that filters limit.

Spark looks a Python source up in the session that is active in the calling thread. A new thread has
none, and there a write, or the start of a stream, fails with DATA_SOURCE_NOT_FOUND, though the
source is installed.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Final, ParamSpec, TypeVar

try:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.utils import is_remote
    from pyspark.util import inheritable_thread_target
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "dledger.spark needs Spark 4.2 or newer: pip install 'dledger[spark]'", name=error.name
    ) from None

from dledger.datasource.java import ensure_java
from dledger.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")
NEVER_NEGATIVE: Final = ("timestampType", "term", "size", "entryIndex", "offset", "partition")
"""Columns of keys and values, those first that few queries compare."""
LOCAL: Final = {
    "spark.master": "local[*]",
    # takes some 40 ms off each micro-batch of a Python source
    "spark.python.unix.domain.socket.enabled": "true",
}


def local_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """A Spark session on this machine, for scripts, notebooks and tests; the active one as it is
    where there is one, as in ``pyspark``.

    Java is that of ``JAVA_HOME`` or ``PATH``, else the one that ``pip install 'dledger[java]'``
    brings. Spark's Python processes run this program's interpreter, unless ``PYSPARK_PYTHON`` names
    another one.

    Args:
        settings: Spark's, by name: ``{"spark.sql.shuffle.partitions": "2"}``.

    Raises:
        JavaMissing: there is no Java, or one that is too old; says in one line what to install.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for name, value in {**LOCAL, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def in_thread(function: Callable[P, R], spark: SparkSession | None = None) -> Callable[P, R]:
    """The same function, to be run in another thread: the session is active there, and what Spark
    keeps for each thread (job group, tags, and in foreachBatch the query and its batch) is as in
    the thread that calls ``in_thread``. So a write from a thread of foreachBatch is still written
    once.

    Thread(target=in_thread(write), args=(frame,)).start()
    pool.submit(in_thread(write), frame)

    Args:
        spark: the session; without it the one that is active in the calling thread.

    Raises:
        ConfigError: no session is given, and none is active here.
    """
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise ConfigError(
            "no Spark session is active in this thread: name it, as in in_thread(write, spark), or "
            "call in_thread in the thread that has made the session"
        )
    inherited: Callable[P, R] = inheritable_thread_target(session)(function)
    if is_remote():
        return inherited  # the server looks sources up in the session of the request

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        # of Spark's public calls, one that makes its session active here
        session.createDataFrame([], "a int")
        return inherited(*args, **kwargs)

    return run


def load_with_pushdown(reader: DataFrameReader, path: str | None = None) -> DataFrame:
    """What a batch read loads, and of that only what the filters of a query leave: those on
    ``topic``, ``partition``, ``offset`` and ``timestamp`` (docs/options.md, "Filters").

    Any number of queries may use the DataFrame, one thread at a time; each thread loads its own.
    A plan covers what all of them have asked for, so load it again for a query that shall read
    little. ``spark.sql.python.filterPushdown.enabled`` must be true, and stay so.

    orders = load_with_pushdown(spark.read.option("subscribe", "orders"), "/data/log")
    orders.where("partition = 1 AND offset >= 500000").count()

    Args:
        reader: ``spark.read`` with its options.
        path: as in ``.load(path)``.

    Raises:
        ConfigError: none of the columns that are read has what tells one DataFrame from another.
    """
    # Spark keeps one plan for what it loads, whatever a query's filters are, and says no word to
    # the source for a query without any: so there is always this one, which all rows pass.
    mark = 2 + secrets.randbelow(2**31 - 2)
    frame = reader.format("dledger").option("filterPushdown", mark).load(path)
    if "_record" in frame.columns:
        column = "_record.term"
    else:
        column = next((name for name in NEVER_NEGATIVE if name in frame.columns), "")
    if not column:
        raise ConfigError(
            "filters can limit what is read only where a column says where rows lie: read one of "
            f"{', '.join(NEVER_NEGATIVE)} too, or with a typed topic set option 'includeMetadata'"
        )
    return frame.where(f"{column} <> -{mark}")


__all__ = ["in_thread", "load_with_pushdown", "local_session"]
