"""The verbs, and parts of verbs, that work without a server. Only here are lower layers than the
client known, by one named entry point each, imported when the verb runs."""
