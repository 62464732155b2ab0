"""Measure speed and memory as ratios inside one run."""
