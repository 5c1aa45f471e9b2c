"""NumPy, by which whole files of a store are read at once: it comes with the extra ``rocketmq``.

What needs it imports it from here, so that a command or a reader says what is missing before it has
read or written anything.
"""

from __future__ import annotations

from dledger.errors import ConfigError

try:
    import numpy as np
    import numpy.typing as npt
except ModuleNotFoundError as error:
    raise ConfigError(
        f"RocketMQ's stores need {error.name}: pip install 'dledger[rocketmq]'"
    ) from None

__all__ = ["np", "npt"]
