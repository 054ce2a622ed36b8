"""Saved results: one directory per tool, files named by content hash, and a JSON record of each call.

    record.py   names of directories and files, and the record of a call
    writer.py   OutputWriter: one file, written in any order
    store.py    OutputStore: save, list, find, remove

All of this blocks on the disk: call it in a thread (`trio.to_thread.run_sync`).
"""

from __future__ import annotations

from playhead.config.outputs.record import Problem, SavedOutput
from playhead.config.outputs.store import (
    Content,
    Listing,
    OutputSettings,
    OutputStore,
    content_of,
    default_output_folder,
)
from playhead.config.outputs.writer import Extent, OutputWriter

__all__ = [
    "Content",
    "Extent",
    "Listing",
    "OutputSettings",
    "OutputStore",
    "OutputWriter",
    "Problem",
    "SavedOutput",
    "content_of",
    "default_output_folder",
]
