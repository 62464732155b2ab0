"""Say what to give up."""
