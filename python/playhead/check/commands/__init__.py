"""The commands of the checker: `playhead check` and `playhead fleet`."""
