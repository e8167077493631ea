"""Who may have how much: shares of a tree of queues, what they may borrow, and what is taken back.

The only place that knows what guaranteed, nominal, limit and weight mean. Queues are rows of arrays
here, resources are columns; nothing is known about nodes, or about jobs beyond what they hold. Pure:
numpy alone, time is passed in.

- `tree`: who is above whom; `quotas`: what is stated for each queue, checked
- `ledger`: what is in use, and may a queue have so much more
- `standing`: who is ahead of its own, and the potential by which exchanges come to an end
- `laws`: may this holding be taken for that claim; `offers`: in which order each queue gives up what it
  holds; `victims`: which ones to take
- `budgets`: hours; `users`: caps per user
"""
