"""The isolation of one machine's tasks, and the probe that finds what the machine grants.

- `syscalls`: unshare, mount and their like, without importing ctypes
- `namespaces`: the isolations, what each promises, which mode has which; leaves the machine's namespaces
- `sandbox`: the network that a strict job's tasks share
- `mounts`: what of the file system a task sees
- `privileges`: the capabilities that a root task keeps, the system calls that none may make
- `cgroups`: CPU, memory and process limits, on either version
- `probe`: which isolations this machine grants, by asking for all of them
- `enter`: a program that runs a command inside a running task's isolation (`shoal exec`)
- `cleanup`: what tasks leave on the disk

All but `probe` and `cleanup` run in the supervisor or as programs: standard library only, and few
imports, for every task pays for them. Nothing here decides what a task is given.
"""
