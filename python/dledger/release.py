"""Which release of the package this is; pyproject.toml takes it from here."""

from typing import Final

RELEASE: Final = "0.2.0"
