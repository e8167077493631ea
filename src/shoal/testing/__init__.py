"""What tests of Shoal, and of parts that others write for it, are made of. Public.

- `clock`: a clock that the test owns
- contract suites, one per Protocol (`store`, `history`, `cluster`): inherit and give a fixture
- fault injection at the named points of `shoal.faults`

May import everything; nothing imports it.
"""
