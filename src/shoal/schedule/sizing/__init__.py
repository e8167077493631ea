"""How many GPUs each elastic job should have: those who end soon first, where that pays for all.

Jobs wait for each other, and the sum of their completion times is to be small. Seen as a flow (sizes
may be any number, nobody arrives any more), that is a problem of optimal control whose answer is simple:
each job has one weight, the time that all jobs together lose if it has a second of work more, and at
every moment the weighted sum of speeds is as large as can be.

- `curves`: speed over sizes, as far as it is concave
- `weights`: that weight of each job, from the one that ends last to the one that ends first
- `choose`: the sizes that make the most of the weights at one price for a GPU, a restart included
- `exact`: the same without a price, where there are few jobs
- `estimate`: weights where nobody has declared how much work is left
- `seen`: jobs as arrays over a grid of sizes
- `policy`: all of it on nodes of equal GPUs

For speeds that are all the same power of the size the weights are those of heSRPT (Berg, Vesilo,
Harchol-Balter 2020); these hold for any concave speeds, each job its own.
"""
