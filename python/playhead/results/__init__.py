"""Interpretation of tool results: content for the model, the user and the player, and when the turn ends."""
