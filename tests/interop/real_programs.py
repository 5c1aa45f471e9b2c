"""The real Java programs, started and stopped: RocketMQ's name server, broker and clients, and a
DLedger server.

All of them listen on loopback only, on ports that were free, with little memory and small files.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from dledger.datasource.java import ensure_java

SOURCES = Path(__file__).parent / "java"
OPEN = (
    "-Djava.net.preferIPv4Stack=true", "-Drocketmq.client.logUseSlf4j=true",
    "--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)  # fmt: skip
"""Java 17 must be told to let the broker unmap its files."""
SMALL = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Many programs that start quickly, for tests."""
LOGGING = """<configuration>
  <appender name="log" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%d %p %t %logger{20} - %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="log"/></root>
</configuration>
"""
PATIENCE = 90.0
"""Seconds that a program may take for anything: a bound on a hang, not a measure."""
FILE_BYTES = 1 << 16
"""Of a commit log file: small, as the other files are, so that there are several of everything."""
BROKER = {
    "brokerClusterName": "interop", "brokerIP1": "127.0.0.1", "mappedFileSizeCommitLog": FILE_BYTES,
    "mappedFileSizeConsumeQueue": 2000, "maxHashSlotNum": 100, "maxIndexNum": 400,
    "transactionCheckInterval": 3_600_000, "waitTimeMillsInSendQueue": 30_000,
    "osPageCacheBusyTimeOutMills": 30_000,
}  # fmt: skip


DEFAULTS = {
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}
"""Of a broker whose files, but for the commit log, are as large as they are without a word; they
are mostly holes."""


def eventually(what: str, ask: Callable[[], Any]) -> Any:
    """What ``ask`` answers as soon as it is true; an AssertionError when it never is."""
    end = time.monotonic() + PATIENCE
    while not (found := ask()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        threading.Event().wait(0.05)
    return found


def free_port() -> int:
    """A port P that is free, as P - 2 and P + 1 are, where a broker listens too."""
    while True:
        with socket.socket() as first, socket.socket() as second, socket.socket() as third:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port - 2))
                third.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def _decoded(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**one, "body": base64.b64decode(one["body"])} for one in found]


def in_ledger_mode(self_id: str = "n0") -> dict[str, Any]:
    """Settings of a broker in DLedger mode, alone in its group."""
    peers = f"{self_id}-127.0.0.1:{free_port()}"
    return {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": "interop",
        "dLegerSelfId": self_id,
        "dLegerPeers": peers,
    }


class Running:
    """A program that was started."""

    def __init__(self, command: list[str], log: Path, **options: Any) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(command, stderr=output, **{"stdout": output, **options})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def printed(self, text: str) -> None:
        """Return once the program has said this."""
        eventually(text, lambda: self.alive() and text in self.log.read_text(errors="replace"))

    def alive(self) -> bool:
        """True. Raises ChildProcessError, with its last words, when it has ended."""
        if self.process.poll() is not None:
            said = self.log.read_text(errors="replace")[-3000:]
            raise ChildProcessError(f"ended with {self.process.returncode}: {said}")
        return True

    def stop(self) -> None:
        """End it as an operator would: brokers write down where they are."""
        self._end()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.kill()

    def _end(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Talker(Running):
    """A program that answers each line of JSON with one."""

    def __init__(self, command: list[str], log: Path) -> None:
        super().__init__(command, log, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, do: str, **more: Any) -> Any:
        """Its answer.

        Raises:
            RuntimeError: what the program met.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line or self.alive(), "it closed its output"
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["answer"]

    def _end(self) -> None:
        """The end of its input is the end of it."""
        assert self.process.stdin is not None
        self.process.stdin.close()


class Broker(Running):
    """A broker over a store; its clients know it as ``name``."""

    def __init__(
        self, programs: Programs, name: str, store: Path, port: int, **settings: Any
    ) -> None:
        self.name = name
        self.store = store
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self._programs = programs
        config = programs.folder / f"{name}.properties"
        lines = {
            **BROKER,
            "brokerName": name,
            "listenPort": port,
            "namesrvAddr": programs.name_server,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            **settings,
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        command = programs.java("org.apache.rocketmq.broker.BrokerStartup", "-c", str(config))
        super().__init__(command, programs.log(name))
        try:
            self.printed("boot success")
        except BaseException:
            self.kill()
            raise

    def client(self) -> Client:
        """A client that can send to this broker; it must be its group's leader, or become it."""
        return Client(self._programs, self)


class Client(Talker):
    """RocketMQ's producers and consumer, for one broker."""

    def __init__(self, programs: Programs, broker: Broker) -> None:
        self.broker = broker
        command = programs.java("Messages", programs.name_server)
        super().__init__(command, programs.log("client"))
        eventually("a master", lambda: self.ask("master", broker=broker.address))

    def create_topic(self, topic: str, queues: int) -> None:
        self.ask("topic", broker=self.broker.address, topic=topic, queues=queues)

    def send(self, messages: Iterable[Mapping[str, Any]], do: str = "send", **more: Any) -> Any:
        """What the producer answers: a result for each message, for a batch one in all."""
        encoded = [
            {**one, "body": base64.b64encode(one["body"]).decode(), "broker": self.broker.name}
            for one in messages
        ]
        return self.ask(do, messages=encoded, **more)

    def pull(self, topic: str, queue: int, tags: str = "*") -> list[dict[str, Any]]:
        """Every message of a queue that has these tags, by the names of
        `dledger.rocketmq.columns.commit_log.SCHEMA`; times in milliseconds."""
        of = {"broker": self.broker.name, "topic": topic, "queue": queue}
        return _decoded(self.ask("pull", **of, tags=tags))

    def offset_at(self, topic: str, queue: int, time_ms: int) -> int:
        """Offset of the first message of a queue that was stored then or later."""
        of = {"broker": self.broker.name, "topic": topic, "queue": queue}
        return int(self.ask("offset", **of, time=time_ms))

    def query(self, topic: str, key: str) -> list[dict[str, Any]]:
        """The messages with a key, by the broker's index."""
        return _decoded(self.ask("query", topic=topic, key=key))

    def view(self, message_id: str) -> dict[str, Any]:
        """The message with this id, by its place in the log: for topics that no consumer may
        pull."""
        return _decoded([self.ask("view", id=message_id)])[0]


class Ledger(Talker):
    """A DLedger server, alone in its group; the node ``n0`` of a store, whose folder is
    ``store/dledger-n0``."""

    def __init__(
        self, programs: Programs, store: Path, file_bytes: int = FILE_BYTES, **settings: Any
    ) -> None:
        config = {
            "group": "interop",
            "selfId": "n0",
            "peers": f"n0-127.0.0.1:{free_port()}",
            "storeBaseDir": str(store),
            "mappedFileSizeForEntryData": file_bytes,
            **settings,
        }
        super().__init__(programs.java("Entries", json.dumps(config)), programs.log("ledger"))
        self.state = eventually("a leader", self._settled)

    def _settled(self) -> dict[str, Any] | None:
        state: dict[str, Any] = self.ask("state")
        return state if state["leader"] and state["committed"] == state["end"] else None

    def entries(self) -> list[dict[str, Any]]:
        """Every entry, by the names of `dledger.rocketmq.columns.entries.ENTRY_SCHEMA`."""
        state = self.ask("state")
        indexes = range(max(0, state["begin"]), state["end"] + 1)
        return _decoded([self.ask("get", index=index) for index in indexes])

    def append(self, body: bytes) -> dict[str, Any]:
        answer: dict[str, Any] = self.ask("append", body=base64.b64encode(body).decode())
        return answer


class Programs:
    """Starts the programs out of a folder of jars; a name server runs from the first time on that
    it is needed."""

    def __init__(self, jars: Path, folder: Path, flags: Sequence[str] = SMALL) -> None:
        """``flags``: of the virtual machines."""
        self.folder = folder
        self._flags = (*flags, *OPEN)
        self._numbers = itertools.count(1)
        self._jars = jars
        self._name_server: Running | None = None
        self._port = free_port()
        ensure_java()
        self._bin = Path(os.environ["JAVA_HOME"], "bin")
        classes = folder / "classes"
        sources = [str(path) for path in sorted(SOURCES.glob("*.java"))]
        compiler = shutil.which("javac", path=os.pathsep.join([str(self._bin), os.environ["PATH"]]))
        assert compiler is not None, (
            "no javac; on Debian and Ubuntu: apt install openjdk-17-jdk-headless"
        )
        flags = ("--release", "17", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes))
        subprocess.run([compiler, *flags, *sources], check=True)
        (folder / "conf").mkdir()
        for name in ("conf/logback_namesrv.xml", "conf/logback_broker.xml", "classes/logback.xml"):
            (folder / name).write_text(LOGGING)

    def java(self, main: str, *arguments: str) -> list[str]:
        """The command that starts a class."""
        path = os.pathsep.join([str(self.folder / "classes"), f"{self._jars}/*"])
        home = (f"-Drocketmq.home.dir={self.folder}", f"-Duser.home={self.folder}")
        return [str(self._bin / "java"), *self._flags, *home, "-cp", path, main, *arguments]

    def log(self, name: str) -> Path:
        """A file for what a program says, another one each time."""
        return self.folder / f"{name}-{next(self._numbers)}.log"

    @property
    def name_server(self) -> str:
        """Its address."""
        if self._name_server is None:
            config = self.folder / "name-server.properties"
            config.write_text(f"listenPort={self._port}\n")
            command = self.java("org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(config))
            self._name_server = Running(command, self.folder / "name-server.log")
            self._name_server.printed("boot success")
        return f"127.0.0.1:{self._port}"

    def stop(self) -> None:
        """Stop the name server."""
        if self._name_server is not None:
            self._name_server.stop()
