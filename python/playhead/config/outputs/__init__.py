"""Saved results: one folder a tool, files named by their content, and a record of every call beside them.

    names.py    folder and file names that no server can choose
    record.py   the JSON beside a file: what was called, and what came
    folder.py   one tool's folder, held open: nothing in it leads out of it
    content.py  what of a content block is saved
    extent.py   which bytes are there
    writer.py   one file while it is written, in any order
    store.py    OutputStore: save, list, find, remove

Everything here blocks on the disk: call it in a thread (`trio.to_thread.run_sync`).
"""

from __future__ import annotations

from playhead.config.outputs.content import Content, content_of
from playhead.config.outputs.extent import Extent
from playhead.config.outputs.record import Problem, SavedOutput
from playhead.config.outputs.store import Listing, OutputStore, default_output_folder
from playhead.config.outputs.writer import OutputWriter

__all__ = [
    "Content",
    "Extent",
    "Listing",
    "OutputStore",
    "OutputWriter",
    "Problem",
    "SavedOutput",
    "content_of",
    "default_output_folder",
]
