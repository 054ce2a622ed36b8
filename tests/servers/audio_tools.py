"""The tools of the audio server on this machine: `speak` needs a program."""

from __future__ import annotations

import shutil

AUDIO_TOOLS = ["musicPlayer", "set_volume", *(["speak"] if shutil.which("espeak-ng") else [])]
