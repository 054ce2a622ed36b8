"""The commands of the agent: `playhead chat`."""
