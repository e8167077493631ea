"""The scheduling core on random clusters."""
