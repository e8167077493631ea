"""What the tests of several packages share: what they need of a machine, and test doubles."""
