"""The papers' figures, measured anew, and their claims beside the measurements: one file a paper."""
