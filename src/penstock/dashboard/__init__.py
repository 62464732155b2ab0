"""What a query has done and does, to look at in a browser: its history in a file, a page and metrics from it."""
