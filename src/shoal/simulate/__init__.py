"""A cluster in virtual time: what a scheduling policy would have done, before it does it to people.

- `referee`: training jobs whose step times and gradient noise were measured, on nodes of equal GPUs,
  after the published Pollux simulator: other policies' published figures come out to the last digit
- `packing`: pods with parts of GPUs on the nodes of a published cluster
- `cluster`: the whole decision, carried out and checked on rows of nodes, queues and jobs
- `scenario`: a file of nodes, queues, jobs and events, and what is decided about it
- `paced`: a list of jobs of known speed, run here and on real tasks, to compare policies
- `policies`: who gets how many GPUs and where, each policy over the same view
- `report`: what a run came to, as one record with the same fields for every policy; `plots`: pictures
- `tables`: rows of CSV files, and what is wrong with them in a sentence

Nothing here runs a real process, or reads a clock but to say what a decision cost; equal input gives
equal output.
"""
