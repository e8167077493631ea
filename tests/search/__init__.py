"""Hyperparameter search: samplers, early stopping, and experiments in virtual time."""
