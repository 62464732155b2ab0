"""In which order, at what price: statistics, cost model, orders, indexes, plan."""
