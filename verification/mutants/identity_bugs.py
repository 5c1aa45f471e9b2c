"""Bugs by which a stranger gets in; nodes of the simulator have no secrets and no certificates."""

from __future__ import annotations

from typing import Final

from verification.mutants.plant import Mutant

PROOFS: Final = "tests/net/test_secret.py"
MEMBERS_PROVE: Final = "tests/node/test_node_secret.py"
CERTIFICATES: Final = "tests/node/test_node_identity.py"
EMBEDDED_GROUPS: Final = "tests/embedded/test_embedded_group.py"

IDENTITY: Final = (
    Mutant(
        "identity-proof-not-compared",
        "D6",
        "node.peers.handshake",
        "Gate.proved",
        "if self._secret.is_proof(message.proof, Side.OPENS, hello, answer):",
        "if message.proof:",
        "any bytes pass for a member's proof of the secret",
        MEMBERS_PROVE,
    ),
    Mutant(
        "identity-role-not-bound",
        "D6",
        "net.secret",
        "Secret.proof",
        "hello.group,\n            hello.node_id,",
        "hello.group,",
        "the proof of one member, or of a client, is good for another member",
        PROOFS,
    ),
    Mutant(
        "identity-reflection",
        "D6",
        "net.secret",
        "Secret.proof",
        "hello.version,\n            side.value,",
        "hello.version,",
        "a node's own proof, sent back to it, passes for a member's",
        PROOFS,
    ),
    Mutant(
        "identity-old-proof",
        "D6",
        "node.peers.handshake",
        "Gate.answer",
        "nonce = bytes.fromhex(self._environment.unique())",
        "nonce = bytes(16)",
        "a proof that was overheard once opens another connection",
        MEMBERS_PROVE,
    ),
    Mutant(
        "identity-node-not-proved",
        "D6",
        "net.connections.handshake",
        "Greeting._prove",
        "if not secret.is_proof(answer.proof, Side.ACCEPTS, self.hello, answer):",
        "if not answer.proof:",
        "whoever listens at a member's address passes for that member",
        PROOFS,
    ),
    Mutant(
        "identity-uri-not-checked",
        "D6",
        "node.peers.handshake",
        "Gate.answer",
        "if (\n"
        "            code is Code.SUCCESS\n"
        "            and hello.node_id\n"
        "            and certified is not None\n"
        "            and hello.node_id not in certified\n"
        "        ):",
        "if code is Code.SUCCESS and hello.node_id and certified is not None and not certified:",
        "one node's certificate is good for every node",
        CERTIFICATES,
    ),
    Mutant(
        "identity-address-not-checked",
        "D6",
        "net.connections.handshake",
        "Greeting._check",
        "if certified is not None and answer.node_id not in certified:",
        "if certified is not None and not certified:",
        "the node at an address is not the one that its certificate names",
        CERTIFICATES,
    ),
    Mutant(
        "identity-enforcement-forgotten",
        "D6",
        "node.peers.secret_enforcement",
        "Enforcement.enforce",
        "self._slots.write_both(_REQUIRED)",
        "self._slots.payload = _REQUIRED",
        "after a restart a node takes members without a proof again",
        MEMBERS_PROVE,
    ),
    Mutant(
        "identity-new-store-takes-all",
        "D6",
        "node.peers.secret_enforcement",
        "Enforcement.__init__",
        "_OPTIONAL if came_before else _REQUIRED",
        "_OPTIONAL",
        "a new node takes members without a proof until its group tells it otherwise",
        MEMBERS_PROVE,
    ),
    Mutant(
        "identity-enforcement-not-at-a-start",
        "D6",
        "node.node",
        "NodeServer._make_parts",
        "if files.catalog.secret_enforced:",
        "if not files.catalog:",
        "a member that took over the leader's state, or lost its record, takes members without a "
        "proof",
        MEMBERS_PROVE,
    ),
    Mutant(
        "identity-enforcement-not-applied",
        "D6",
        "node.proposals.applier",
        "Applier._apply_one",
        "if isinstance(command, EnforceSecret):",
        "if not command:",
        "what the group has committed holds only from a member's next start on",
        MEMBERS_PROVE,
    ),
    Mutant(
        "identity-enforcement-not-kept-is-answered",
        "D6 D2",
        "node.peers.handshake",
        "Gate.enforce",
        'raise StorageError(f"{self._node.directory}: {error.strerror}") from None',
        "del error",
        "a node goes on although it would take members without a proof after its next start",
        MEMBERS_PROVE,
    ),
    Mutant(
        "identity-leader-shuts-out-who-is-away",
        "D6",
        "node.peers.handshake",
        "Gate.shut_out",
        "for member in others if member not in reached]",
        "for member in others if not member]",
        "a member that is down while the secret is enforced has no secret when it comes back, and "
        "is refused for ever",
        MEMBERS_PROVE,
    ),
    Mutant(
        "identity-leader-shuts-out-who-proves-nothing",
        "D6",
        "node.peers.handshake",
        "Gate.shut_out",
        "if member in reached and (member not in proved or member in self.unproved)",
        "if member in reached and not member",
        "a member of a rolling restart that has yet to get the secret is refused for ever",
        MEMBERS_PROVE,
    ),
    Mutant(
        "identity-lock-for-all",
        "D6",
        "embedded.home",
        "Home._open_lock",
        "os.fchmod(descriptor, 0o600)",
        "os.fchmod(descriptor, 0o644)",
        "another user can hold the lock of a group of the release before for ever",
        EMBEDDED_GROUPS,
    ),
)
