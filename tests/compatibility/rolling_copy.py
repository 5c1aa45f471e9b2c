"""A streaming copy that runs while the nodes below it change their release, by the interpreter of
either one: ``rolling_copy.py ADDRESSES FROM TO CHECKPOINT``. It says when it runs, and ends with
its standard input: at once, amid a batch or not, or where that has the word ``all``, once it has
copied all that there is."""

from __future__ import annotations

import sys

QUIET = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
RUNS = "the copy runs"
ALL = "all"


def main(addresses: str, source: str, target: str, checkpoint: str) -> None:
    from dledger.spark import local_session

    spark = local_session(QUIET)
    group = {"dledger.bootstrap.servers": addresses}
    reader = spark.readStream.format("dledger").options(**group, subscribe=source)
    rows = reader.option("startingOffsets", "earliest").load().select("key", "value")
    writer = rows.writeStream.format("dledger").options(**group, topic=target)
    query = writer.option("checkpointLocation", checkpoint).start()
    while not query.lastProgress and "Waiting" not in query.status["message"]:
        query.awaitTermination(1)  # raises what made it fail
    print(RUNS, flush=True)  # noqa: T201
    if sys.stdin.read().strip() == ALL:
        query.processAllAvailable()
    failed = query.exception()
    query.stop()
    spark.stop()
    if failed is not None:
        raise failed


if __name__ == "__main__":
    main(*sys.argv[1:])
