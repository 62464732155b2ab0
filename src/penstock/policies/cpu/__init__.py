"""Ways to do less work than a window join asks for, one file each."""
