"""The commands of the configuration: `playhead discover` and `playhead outputs`."""
