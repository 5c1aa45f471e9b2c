"""The program that test_driver_kills kills: a streaming copy from topic ``a`` to topic ``b``, to
the end of ``a``.

It tells consumer group ``copy`` how far it is.
"""

import sys

from examples.session import spark_session


def main(servers: str, checkpoint: str) -> None:
    group = {"dledger.bootstrap.servers": servers}
    reader = spark_session("copy").readStream.format("dledger").options(**group, subscribe="a")
    reader = reader.options(startingOffsets="earliest", groupId="copy", maxOffsetsPerTrigger=500)
    writer = reader.load().select("key", "value").writeStream.format("dledger")
    writer = writer.options(**group, topic="b", checkpointLocation=checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
