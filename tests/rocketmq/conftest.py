"""Makes `parsers` and `made_logs` importable: tests are no packages."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
