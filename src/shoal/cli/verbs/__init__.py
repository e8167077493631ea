"""The verbs that talk to a server, one per file; each holds its Click command as `command`."""
