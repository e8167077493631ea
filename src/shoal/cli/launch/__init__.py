"""What `shoal run` adds to a plain create: from the words and the surroundings of a shell to a Job,
and from a Job back to the shell: its output, its exit code, Ctrl-C.

- `job`: the Job that the options describe, with the environment and the share of processors of a task
- `attach`: follow a job to its end, with what Ctrl-C means, and what is said of it on stderr
"""
