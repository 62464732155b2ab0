"""Policies for a memory budget, one file each."""
