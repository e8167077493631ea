"""Who may have how much: shares of a tree of queues."""
