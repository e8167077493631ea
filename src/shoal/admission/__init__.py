"""What every new or changed object passes on its way to the store, from a person or a controller.

Admission completes an object (defaults, the coordinator's role of an elastic job, submitter, owner) and
refuses what cannot be right (validation, rights in queues, the tree of queues, levels of the topology).
It stands below `control`, so that a controller that creates objects cannot go around it, and knows the
store as a protocol; nothing of HTTP, files or clusters.
"""
