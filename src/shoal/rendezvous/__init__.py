"""What a task is told so that it finds its peers: one pure function per framework's contract.

Each module has `tell(job, task, group) -> Told`-like output built from endpoints that are resolved by
the cluster, never spelled here. Imports `shoal.objects` alone; the shapes it needs of tasks and
endpoints are its own (`base`).
"""
