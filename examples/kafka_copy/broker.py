"""Kafka brokers on loopback, controllers and all, out of a folder of jars."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn, Self

CLUSTER_ID = "ZGxlZGdlci1mcm9tLWthZg"
"""Kafka wants 16 bytes in this form."""
READY_S = 60.0


def free_ports(count: int) -> list[int]:
    """Ports without listeners, all different."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in held]


def java_command() -> str:
    """The Java that Spark takes too."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


@contextmanager
def brokers(
    jars: Path, directory: Path, count: int, settings: Mapping[str, object]
) -> Iterator[str]:
    """So many that form one cluster, with a copy of each record at all of them. ``settings`` are
    further ones of each. Yields their addresses, as a client takes them.

    Raises:
        SystemExit: one does not start, with its last words.
    """
    found = free_ports(2 * count)
    places = list(zip(found[::2], found[1::2], strict=True))
    made = [
        Broker(jars, directory / f"kafka-{number}", 1, places, number, settings)
        for number in range(count)
    ]
    with ExitStack() as stack:
        for one in made:
            stack.callback(one.kill)  # the last ones would wait for a controller
            one.start()
        for one in made:  # none listens before most of their controllers have found each other
            one.wait_ready()
        yield ",".join(one.servers for one in made)


class Broker:
    """Runs for as long as the ``with`` block. A topic that is written to is made, with
    ``partitions`` partitions. It is the one with this number at ``places``, ports of brokers and
    controllers of a cluster, and alone where there are none."""

    def __init__(
        self,
        jars: Path,
        directory: Path,
        partitions: int,
        places: Sequence[tuple[int, int]] = (),
        number: int = 0,
        settings: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        if not places:
            port, controller = free_ports(2)
            places = [(port, controller)]
        port, controller = places[number]
        voters = [f"{at}@127.0.0.1:{one}" for at, (_, one) in enumerate(places, 1)]
        copies = len(places)
        most = copies // 2 + 1
        self.servers = f"127.0.0.1:{port}"
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._jars, self._directory, self._log = jars, directory, directory / "kafka.log"
        self._settings = {
            "process.roles": "broker,controller",
            "node.id": number + 1,
            "log.dirs": directory / "data",
            "listeners": f"PLAINTEXT://{self.servers},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.servers}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.quorum.voters": ",".join(voters),
            "num.partitions": partitions,
            "default.replication.factor": copies,
            "min.insync.replicas": most,
            "auto.create.topics.enable": "true",
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": most,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": most,
            "group.initial.rebalance.delay.ms": 0,
            **settings,
        }

    def _java(self, main: str, *arguments: str) -> list[str]:
        return [
            java_command(),
            "-Xmx1g",  # as Kafka's own scripts have it
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            str(self._jars / "*"),
            main,
            *arguments,
        ]

    def __enter__(self) -> Self:
        """Raises SystemExit with the broker's last words when it does not start."""
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def start(self) -> None:
        """Raises SystemExit with its last words when its directory is not made."""
        self._directory.mkdir(parents=True)
        file = self._directory / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        with self._log.open("ab") as log:
            form = self._java(
                "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file)
            )
            if subprocess.run(form, stdout=log, stderr=log, check=False).returncode:
                self._fail()
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(file)), stdout=log, stderr=log
            )

    def wait_ready(self) -> None:
        """Until it listens. Raises SystemExit with its last words when it does not."""
        deadline, tick = time.monotonic() + READY_S, threading.Event()
        while not self._answers():
            if self._process is None or self._process.poll() is not None:
                self._fail()
            if time.monotonic() > deadline:
                self._fail()
            tick.wait(0.1)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        except OSError:
            return False
        return True

    def _fail(self) -> NoReturn:
        raise SystemExit(f"Kafka does not start:\n{self._log.read_text(errors='replace')[-3000:]}")

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Waits for its end; one that was not started is no error."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def kill(self) -> None:
        """At once; one that was not started is no error."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
