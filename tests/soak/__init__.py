"""An elastic job of real processes under random harm, for a minute or for hours.

`plan` draws the blows, `conduct` deals them to a job and keeps its places filled, `tape` reads what the
workers tell and checks it, `health` watches what their processes hold, `leaks` looks for what is left,
`table` says what came of it. `train.py` is what the workers run.
"""
