"""Say how good an answer is: the books of a run, the exact join, set measures, and what it takes to complete it."""
