"""One training script per system. Each is started as `python -m bench.elastic.workers.NAME`, makes the
model of its settings, and trains until it is ended or its data is used up, one mark per step.
"""
