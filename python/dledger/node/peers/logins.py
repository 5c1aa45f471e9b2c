"""Users at a node's port: the node's side of SCRAM, and how often they may try."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from dledger.catalog.access.users import Users
from dledger.net.scram import Claim, ScramError, claim_of, proved_by, server_first
from dledger.protocol.messages.hello import HelloRequest, HelloResponse
from dledger.types import ANONYMOUS, Principal

PAUSE_MS: Final = 250
"""Behind the first wrong proof; twice as long behind each further one, up to `MOST_PAUSE_MS`."""
MOST_PAUSE_MS: Final = 2000
FORGET_MS: Final = 60_000
MOST_REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Login:
    """A proof that was right: whose, and the key by which it was checked."""

    user: str
    claim: Claim
    stored_key: bytes


class Logins:
    """The check of users' proofs against the catalog's users."""

    def __init__(self) -> None:
        self.users: Callable[[], Users] = Users
        self.now_ms: Callable[[], int] = int
        """The catalog's time."""
        self.is_current: Callable[[], bool] = bool
        """Whether the catalog has what the group has committed, as far as this node can tell."""

    def challenge(self, hello: HelloRequest, nonce: bytes) -> bytes:
        """SCRAM's first message to a client that says it is a user, whether there is one or not.

        Raises:
            ScramError: its own first message is none.
        """
        claim = claim_of(hello)
        verifiers = self.users().verifiers(claim.name, claim.is_token, self.now_ms())
        return server_first(hello, nonce, verifiers[0])

    def check(
        self, hello: HelloRequest, answer: HelloResponse, final: bytes
    ) -> tuple[Login, bytes] | None:
        """A client's proof: whose login it is, and SCRAM's last message; None where it is wrong."""
        claim = claim_of(hello)
        verifiers = self.users().verifiers(claim.name, claim.is_token, self.now_ms())
        found = proved_by(verifiers, hello, answer, final)
        user = self.users().owner(claim.name, claim.is_token)
        if found is None or not user:
            return None
        verifier, last = found
        return Login(user, claim, verifier.stored_key), last

    def holds(self, login: Login) -> bool:
        """Whether a login of some time ago would be one now."""
        claim = login.claim
        verifiers = self.users().verifiers(claim.name, claim.is_token, self.now_ms())
        return any(verifier.stored_key == login.stored_key for verifier in verifiers)

    def principal(self, hello: HelloRequest) -> Principal:
        """The principal that a hello claims."""
        try:
            claim = claim_of(hello)
        except ScramError:
            return ANONYMOUS
        user = self.users().owner(claim.name, claim.is_token)
        return Principal(f"User:{user or claim.name}")


class LoginPauses:
    """Makes who was wrong wait before the next proof is looked at, right or wrong: of proofs sent
    at once each waits for those before it."""

    def __init__(self) -> None:
        self._wrong: dict[Hashable, tuple[int, int]] = {}
        """By user and address: how often in a row, and when the next proof is looked at."""

    def wait_ms(self, who: Hashable, now_ms: int) -> int:
        """How long the proof that came now has to wait."""
        times, free_ms = self._wrong.get(who, (0, 0))
        if not times or now_ms - free_ms > FORGET_MS:
            self._wrong.pop(who, None)
            return 0
        at_ms = max(now_ms, free_ms)
        self._wrong[who] = (times, at_ms + _pause_ms(times))
        return at_ms - now_ms

    def judged(self, who: Hashable, now_ms: int, *, is_right: bool) -> None:
        """A proof was looked at."""
        times, free_ms = self._wrong.pop(who, (0, 0))
        if is_right:
            return
        self._wrong[who] = (times + 1, max(free_ms, now_ms + _pause_ms(times + 1)))
        if len(self._wrong) > MOST_REMEMBERED:
            del self._wrong[next(iter(self._wrong))]


def _pause_ms(times: int) -> int:
    return min(MOST_PAUSE_MS, PAUSE_MS << min(times - 1, 8))
