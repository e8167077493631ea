"""When each waiting job starts: dates that are kept, and small jobs in the gaps before them.

Without time, a job either fits now or is passed over, and a large one starves under a stream of small
ones. Wall times bound when capacity comes back, so each job can be told a date, and whoever is done
before that date may start meanwhile. Counts alone: which nodes is for placing to say. Arrays in, arrays
out; imports numpy alone.

- `asks`: what a plan is made from
- `plan`: the plan, and what it says of each job; `keep`: what was promised is laid first
- `grid`: instants rounded, finely near now; `timeline`: what is free over time, and the earliest fit
- `board`: the timelines of all pools; `shapes`: equal asks share a search
- `turns`: round robin where nobody knows the length
"""
