"""Bugs of queries and tables whose topics go, or change, while they are read."""

from __future__ import annotations

from typing import Final

from verification.mutants.plant import Mutant

GONE: Final = "tests/streaming/test_stream_gone.py"
SQL: Final = "tests/datasource/test_sql.py"

QUERIES: Final = (
    Mutant(
        "gone-topic-not-asked-for-anew",
        "P12",
        "streaming.reader",
        "LogStreamReader.partitions",
        "                self._infos = {}\n",
        "",
        "a topic that is deleted behind the end of a batch stops a query that may go on",
        GONE,
    ),
    Mutant(
        "deleted-while-planned",
        "P12",
        "streaming.reader",
        "LogStreamReader.partitions",
        "except (TopicNotFound, TopicRecreated, OffsetOutOfRange):",
        "except (TopicRecreated, OffsetOutOfRange):",
        "a topic that is deleted while tasks are planned stops a query that may go on",
        GONE,
    ),
    Mutant(
        "gone-topic-looked-at-once",
        "P12",
        "streaming.reader",
        "LogStreamReader.latestOffset",
        "if not self._look_again(self._seen):",
        "if self._look_again(self._seen):",
        "a topic that is deleted while the end of a batch is looked for stops a query that may go "
        "on",
        GONE,
    ),
    Mutant(
        "available-now-goes-on",
        "P12",
        "streaming.reader",
        "LogStreamReader._look_again",
        "(view if view.ids[t] == log_id else fresh)",
        "fresh",
        "a run that should end where the log ended reads on once a topic was deleted",
        GONE,
    ),
    Mutant(
        "first-offset-of-a-gone-topic",
        "P12",
        "datasource.table.log",
        "Log.settled",
        "                if infos == self.select():\n",
        "                if infos != self.select():\n",
        "a topic that is deleted while the first offsets are looked for stops the query",
        GONE,
    ),
    Mutant(
        "task-takes-deleted-for-recreated",
        "P12",
        "datasource.read.reader",
        "_check_gone",
        "        again = False\n",
        "        again = True\n",
        "records of a deleted topic are left out without the user's word",
        GONE,
    ),
    Mutant(
        "task-takes-recreated-for-deleted",
        "P12",
        "datasource.read.reader",
        "_check_gone",
        ".log_id != given.log_id",
        ".log_id == given.log_id",
        "records of a topic's former life are left out by an option that is for deleted topics",
        GONE,
    ),
    Mutant(
        "task-forgets-the-users-word",
        "P12",
        "datasource.read.reader",
        "_input",
        "not options.restart_recreated",
        "True",
        "a task whose topic was made anew fails though the query may go on with the new one",
        GONE,
    ),
    Mutant(
        "gone-records-not-told",
        "P12",
        "datasource.read.loss",
        "deleted",
        "    if fail:\n",
        "    if not fail:\n",
        "records of a deleted topic are left out though that is to be an error",
        GONE,
    ),
    Mutant(
        "statement-without-escapes",
        "P12",
        "datasource.options.sql",
        "_quoted",
        "    escaped = text.replace(",
        "    escaped = text or text.replace(",
        "the statement of an error is none for a path with a quote",
        SQL,
    ),
    Mutant(
        "wider-columns-unsaid",
        "P12",
        "datasource.table.typed",
        "unseen",
        " or wanted.fields[at].type != one.type",
        "",
        "nobody is told that an SQL table has narrower columns than its topic",
        SQL,
    ),
    Mutant(
        "altered-table-told-to-load",
        "P12",
        "datasource.table.schema",
        "check_read_schema",
        "if way := remade(schema):",
        'if way := "":',
        "the error of an altered SQL table names a way that SQL does not have",
        SQL,
    ),
)
