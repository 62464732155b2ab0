"""The best that was possible: what an algorithm that knows the future keeps in memory, proved."""
