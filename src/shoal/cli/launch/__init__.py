"""What `shoal run` adds to a plain create: from the words and the surroundings of a shell to a Job,
and from a Job back to the shell: its output, its exit code, Ctrl-C.

- `environment`: which variables of the caller a task gets
- `job`: the Job that the options describe; `shares`: the processors a task asks for unless told
- `attach`: follow a job to its end; `interrupts`: what Ctrl-C means meanwhile
"""
