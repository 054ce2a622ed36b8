"""Configurations to start from. `modules = ["playhead.config.examples"]` in a tool configuration file uses
them as they are; nothing of them holds unless it is asked for."""
