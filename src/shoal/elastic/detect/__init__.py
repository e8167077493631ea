"""Who sees that a worker is gone, stopped, silent or stuck; evidence suspects, the coordinator decides.

A process of its own beside each worker: threads of the worker starve while C code holds the interpreter
lock. Standard library only.
"""
