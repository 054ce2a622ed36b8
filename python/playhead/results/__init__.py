"""What a tool result means: what goes to the model, the user and the player, and whether the turn ends."""
