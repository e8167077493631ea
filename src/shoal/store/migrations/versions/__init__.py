"""One module per schema; see the package above."""
