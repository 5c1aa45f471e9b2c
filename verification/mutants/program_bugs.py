"""Bugs of programs that start, join and end one embedded group, for the schedules of
`verification.interleave`."""

from __future__ import annotations

from typing import Final

from verification.mutants.plant import SCHEDULES, Mutant

PROGRAMS: Final = (
    Mutant(
        "programs-look-once",
        "P11",
        "embedded.group",
        "_has_died",
        "return any(not home.node(node).running and not home.failed_lately(node) for node in "
        "file.local)",
        "return False",
        "a node that was killed just before a program looked at it, and was not gone yet, stays "
        "away",
        SCHEDULES,
    ),
    Mutant(
        "programs-start-beside-one-another",
        "P11",
        "embedded.home",
        "Home.lock",
        "fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.LOCK_EX",
        "two programs start the nodes of one directory at the same time",
        SCHEDULES,
    ),
    Mutant(
        "programs-make-two-groups",
        "B35 P1",
        "embedded.start",
        "join_group",
        "        file = home.read()\n        file = _new_group",
        "        file = _new_group",
        "of two programs that make a group at one path the second one puts its own in place of "
        "the first one's",
        SCHEDULES,
    ),
    Mutant(
        "programs-end-each-others-group",
        "P11",
        "embedded.group",
        "_counts",
        "return user.holds or not is_descendant(user.process.pid, own.pid)",
        "return user.holds",
        "a program that ends its group ends it for another one that has named the path",
        SCHEDULES,
    ),
    Mutant(
        "programs-forget-others",
        "P11",
        "embedded.home",
        "Home.add_user",
        "others = [\n"
        "            u for u in file.live_users() if u.process != user.process or u.holds != "
        "user.holds\n"
        "        ]",
        "others = []",
        "a program that joins is all that counts: when it ends, the group ends under the others",
        SCHEDULES,
    ),
    Mutant(
        "programs-unnoted",
        "P11",
        "embedded.start",
        "_nothing_to_do",
        "return live and same and (known or not os.access(home.group_file, os.W_OK))",
        "return live and same",
        "a program that finds all nodes running is not noted as a user, and they end under it",
        SCHEDULES,
    ),
    Mutant(
        "programs-ports-unwritten",
        "P11",
        "embedded.start",
        "start_nodes",
        "file = home.write(\n"
        "            replace(file, addresses=kept | _pick_addresses(file.settings, waiting, "
        "kept))\n"
        "        )",
        "file = replace(file, addresses=kept | _pick_addresses(file.settings, waiting, kept))",
        "a node whose port a stranger has taken tries the same port again",
        SCHEDULES,
    ),
    Mutant(
        "programs-nameless-runs",
        "P11",
        "embedded.start",
        "_settle",
        "state = _named(home, node)",
        "state = home.node(node)",
        "a program that comes while nodes are about to go is told that they run",
        "tests/embedded/test_embedded_ends.py",
    ),
    Mutant(
        "programs-end-a-node-once",
        "P11",
        "embedded.start",
        "stop_nodes",
        "while processes :=",
        "if processes :=",
        "a node that was started twice goes on when its group has ended",
        "tests/embedded/test_embedded_ends.py",
    ),
    Mutant(
        "programs-take-a-killed-node-for-one-that-runs",
        "P11",
        "embedded.start",
        "_settle",
        "        home.wait_gone(node, process, DRAIN_TIMEOUT_S)\n        return\n",
        "        return\n",
        "a program that names the path while a killed node ends waits for one that nobody starts",
        "tests/embedded/test_embedded_ends.py",
    ),
    Mutant(
        "programs-give-up-a-killed-start",
        "P11",
        "embedded.start",
        "_spawn_again",
        "return results | spawn_nodes(home, killed)",
        "return results",
        "a node that is killed while it starts is reported as one that cannot start",
        "tests/embedded/test_embedded_group.py",
    ),
    Mutant(
        "programs-start-again-what-ended-by-itself",
        "P11",
        "embedded.spawning",
        "_answer",
        "if exit_code(pid, END_TIMEOUT_S) == -signal.SIGKILL:",
        "if exit_code(pid, END_TIMEOUT_S) != 0:",
        "a node that fails by itself is started once more, and its store's error is called a kill",
        "tests/embedded/test_embedded_group.py",
    ),
)
