"""One join as an object: what was asked for, rows pushed in, joined rows out, its books and its state."""
