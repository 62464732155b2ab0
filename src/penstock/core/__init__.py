"""Hold the windows and move one batch through them, on arrays only."""
