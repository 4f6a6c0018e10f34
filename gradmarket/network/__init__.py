"""How this product reaches others: one policy of proxies, trust and time for every connection that it opens."""
