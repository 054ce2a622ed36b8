"""Results of tool calls: what they hold, what can be opened in them, and how they are processed."""
