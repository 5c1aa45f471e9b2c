"""An authority and its certificates: those of nodes, of clients and of other groups' nodes
(docs/operations.md)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from dledger.errors import ConfigError

KEY = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"


class Authority:
    """One that signs; its files are in ``folder``.

    Raises:
        ConfigError: this machine has no ``openssl``, or it does not do that.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.certificate = folder / "authority.pem"
        self._key = folder / "authority.key"
        _openssl(
            f"req -x509 {KEY} -subj /CN=strangers -days 2 -keyout {self._key} "
            f"-out {self.certificate}"
        )

    def issue(self, name: str, *uris: str) -> tuple[str, str, str]:
        """The files of the authority, of a certificate for 127.0.0.1 and these URIs, and of its
        key."""
        request, key, signed = (self._folder / f"{name}.{kind}" for kind in ("csr", "key", "pem"))
        names = ",".join(("IP:127.0.0.1", *(f"URI:{uri}" for uri in uris)))
        _openssl(
            f"req -new {KEY} -subj /CN={name} -addext subjectAltName={names} -keyout {key} "
            f"-out {request}"
        )
        _openssl(
            f"x509 -req -in {request} -CA {self.certificate} -CAkey {self._key} -CAcreateserial "
            f"-days 2 -copy_extensions copy -out {signed}"
        )
        key.chmod(0o644)  # for the other user, whose it is
        return str(self.certificate), str(signed), str(key)


def _openssl(line: str) -> None:
    """``line``: the arguments, none of which has a blank in it."""
    try:
        subprocess.run(["openssl", *line.split()], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", b"") or str(error).encode()
        raise ConfigError(
            f"openssl {line.split()[0]}: {said.decode(errors='replace').strip()[-400:]}"
        ) from None
