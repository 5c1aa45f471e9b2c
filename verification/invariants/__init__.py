"""Invariants of a group, checked from outside after every event of the simulator.

A `watch.Watch` is told of everything that happens (`wiring.attach` puts it between a node's parts)
and raises `broken.Broken` with the number of the invariant. It compares fields, entry by entry and
message by message, with what it saw before, so that no check has to be left out for the sake of
time. `truth.Truth` has the state that all nodes together have shown: every entry that was ever
written, and the one committed log.

Number, invariant, and the modules that check it:

I1   at most one leader in a term, and in one of its lives (election)
I2   a leader never cuts or shortens its log (logs)
I3   logs match: an index and a term name one entry and all before it, by chainCrc; no gap, terms
     never go back; a recovered log was written before (logs, truth)
I4   a leader has every entry that was committed in an earlier term, also one that is committed
     there later (election)
I5   all nodes apply the committed entry, with its bytes, to the same result (commit)
I6   commit indexes go forward, in a life and over restarts; only a leader moves the first one, and
     only onto an entry of its own term (commit)
I7   a committed entry is durable on a majority at that moment, and a durable entry is there again
     after a crash; the core takes no entry for durable that the store has not synced (commit, logs)
I8   one vote in a term, over restarts (election)
I9   terms go forward, over restarts (election)
I10  an acknowledged record has its offset in the committed log; its bytes: I5, I20, I26 (commit)
I11  offsets without gap or reuse, of batches and of transactions (commit, ends)
I12  no entry above the commit index is applied or served (commit, reads, storage)
I13  a read index covers every entry that a node had committed when the read was asked for; catalogs
     never go back; sessions of clients: I26 (reads)
I14  no entry is cut that the node, in any of its lives, or the group has called committed (logs)
I15  the front of a log goes forward, over restarts. It does not pass an entry that is not
     committed, not in a saved catalog, needed by a transaction, not expired, or missing on another
     member's disk while it may wait for that (logs, retention)
I16  a producer's batches are there once, in order, and none of a fenced session (commit)
I17  the incarnations that count change one member at a time, by committed entries, and for all
     nodes alike; a member is expelled only when its disk was exchanged; no node takes part with
     another list of members, or takes a hello, term or entry of another group of this name. Lists
     that can decide at the same time have majorities that meet, at most one change is in flight,
     and a leader is elected by voters of its list alone, so by none that was removed (members). At
     most one replacement is under way; at the end every node has each member where it is
     (sim.moving). A group made from one disk has no entry that old members wrote without that disk
     (sim.disaster)
I18  a leader that looks at the clock and has not heard a quorum for an election time steps down
     (reads)
I19  entries in memory, pending bytes, pushes and their windows within their limits (messages)
I20  no wrong byte leaves a store, and it serves every sound entry; at the end every log is read
     from its first entry to its last; the files are empty behind its end (storage, at_rest)
I21  no message, effect or write of the store after a fatal error (messages, storage, watch)
I22  a node's snapshot of its catalog is of committed entries and equal to that of other nodes
     there, and so is a restored catalog (storage)
I23  terms, votes and acknowledgements are on the disk before they are sent (messages)
I24  at the end all live nodes have committed and applied the same, and have equal catalogs (ends)
I25  a healed group commits again within ten election times (ends)
I26  the history of the clients is that of a linearizable log (`dledger.testing.checkers`) (ends)
I27  topics and consumer groups are those that the committed commands make, in every catalog, over
     restarts; a group's offsets are the acknowledged ones, and a deleted topic stays deleted
     (commands)
I28  a stage without a commit or abort ends when its time is over, and not sooner, even when wall
     clocks jump (commands)
I29  bytes of data or index are called durable only when a sync covers them that began after they
     were written; on a node's start, too (sim.disk)
I30  a write with a digest is committed once; made again with the same rows it changes nothing, with
     other rows, or of an older sequence, it is refused (sim.writes)
I31  version, settings and list of members are those that the committed commands make, in every
     catalog, over restarts; no command is applied before the group has the version for it
     (commands)
G1   no record of a consumer group is handed to a member once another one was handed records of that
     partition in a later epoch (consumed)
G2   a member begins where its group is, is handed each record in order from there, and commits no
     other (consumed)
G3   a group's offsets never go back, and an acknowledged commit is among them (consumed)
G4   offsets change by a commit of who has the partition, in an epoch since which that is so, and by
     nothing that is refused (consumed)
G5   a partition changes hands when its member has released it, or is gone (consumed)
G6   a member's session does not end before its time-out has passed since its last answered
     heartbeat was sent (consumed)
D11  no node asks for votes in a new term before a quorum would give them (pre-vote) (election)
S1   a setting is what the answer to its change said, and every node works with those that its
     catalog has (sim.stepping)
Q1   a message of a RocketMQ commit log is where its put says, once; one that was refused is nowhere
     (queued)
Q2   queue offsets have no gap, in the order of the log (queued)
Q3   each message that a client is shown is committed, and no consumer is led past a kept one
     (queued)
Q4   consume queues and index agree with the log at the end, and have no more than the log after any
     restart (queued)
W1   a commit is new, a repeat, or refused for its other rows, as all commits before say, also of
     writers that gave way to others; every catalog knows each writer's last one, over restarts
     (writers)

Of I17: a group's members are its configuration; the incarnation of each that counts changes. I7
sees that the quorums of before and after meet, since the one that is admitted must not be counted
for the entry that admits it. I22 also holds for a catalog that was taken over from another node: it
is looked at when its new owner starts on it.
"""
