"""Spark from other threads than the one that made the session.

Spark looks a Python source up in the session that is active in the calling thread. A new thread has
none, and there a write, or the start of a stream, fails with DATA_SOURCE_NOT_FOUND, though the
source is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote
from pyspark.util import inheritable_thread_target

from dledger.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")


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


__all__ = ["in_thread"]
