"""The commands of the servers: `playhead serve` and `playhead schema`."""
