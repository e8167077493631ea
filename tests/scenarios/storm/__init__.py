"""What crash tests and the storm have in common: tasks with a plan, people who do not give up, traces,
their replay, and a look at what is left.

- `tasks`: the tiny program that every task runs; it claims its incarnation, then does what its plan says
- `people`: create, edit, delete and wait, through any number of server's deaths
- `leaks`: what of a home is left that should be gone
- `plan`: two hundred jobs and what is done to them, drawn from a seed
- `play`: runs a plan on a real home, with kills
- `trace`: what happened, read from the store's own log and the nodes' ledgers
- `replay`: the same in virtual time, and whether it comes out the same
"""
