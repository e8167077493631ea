"""What parts of scheduling cost and what they are worth: a module each, `python -m bench.schedule.PART`.

Each has `rows()`, which gives `Row`s or prints nothing, and `main()`, which prints their table.
"""
