"""The core in a second interpreter of the process: refused, with a remedy, and the first goes on."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
try:
    import _interpreters as interpreters
except ImportError:  # until 3.12
    import _xxsubinterpreters as interpreters
from playhead._core import decode_base64

second = interpreters.create()
interpreters.run_string(second, f"import sys; sys.path[:] = {sys.path!r}")
interpreters.run_string(second, '''if True:
    try:
        import playhead._core
    except ImportError as error:
        print(error, flush=True)
''')
interpreters.destroy(second)
print(decode_base64("QUJD"))
"""


def test_a_second_interpreter_is_refused_and_the_first_goes_on() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert (ran.stderr, ran.returncode) == ("", 0)
    *refusal, goes_on = ran.stdout.splitlines()
    assert "expected the main interpreter of the process, got subinterpreter 1" in refusal[0]
    assert "process of its own" in refusal[0]
    assert goes_on == "b'ABC'"
