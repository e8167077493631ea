"""What parts of scheduling cost and what they are worth: a module each, `python -m bench.schedule.PART`.

Each has `rows()`, as the modules of `bench` have, and `main()`, which prints their table.
"""
