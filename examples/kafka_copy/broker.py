"""One Kafka broker on loopback, controller and all, out of a folder of jars."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Self

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


class Broker:
    """Runs for as long as the ``with`` block. A topic that is written to is made, with
    ``partitions`` partitions."""

    def __init__(self, jars: Path, directory: Path, partitions: int) -> None:
        port, controller = free_ports(2)
        self.servers = f"127.0.0.1:{port}"
        self._port = port
        self._jars, self._directory, self._log = jars, directory, directory / "kafka.log"
        self._settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "log.dirs": directory / "data",
            "listeners": f"PLAINTEXT://{self.servers},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.servers}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "num.partitions": partitions,
            "auto.create.topics.enable": "true",
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
        }

    def _java(self, main: str, *arguments: str) -> list[str]:
        return [
            java_command(),
            "-Xmx512m",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            str(self._jars / "*"),
            main,
            *arguments,
        ]

    def __enter__(self) -> Self:
        """Raises SystemExit with the broker's last words when it does not start."""
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
        deadline, tick = time.monotonic() + READY_S, threading.Event()
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                self._fail()
            tick.wait(0.1)
        return self

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        except OSError:
            return False
        return True

    def _fail(self) -> None:
        raise SystemExit(f"Kafka does not start:\n{self._log.read_text(errors='replace')[-3000:]}")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
