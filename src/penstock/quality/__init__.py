"""Say how good an answer is: the books of a run, the exact join, and what it would take to complete it."""
