"""`python -S -m tests.servers.planted [DEFECT]`: the faultless server, or the one with that defect."""

from __future__ import annotations

import sys

from tests.servers.planted.defects import DEFECTS
from tests.servers.planted.faultless import Faultless

(Faultless() if len(sys.argv) < 2 else DEFECTS[sys.argv[1]]()).run()
