"""The command of the configuration: `playhead outputs`."""
