"""What people look at: the demo."""
