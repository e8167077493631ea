"""What tests of Shoal, and of parts that others write for it, are made of. Public.

- `clock`: a clock that the test owns
- contract suites, one per Protocol (`store`, `history`, `cluster`): inherit and give a fixture
- `plane`: the whole control plane in virtual time; `local`: a real home, and what it leaves behind
- `chaos`: faults in a running home, also at the named points of `shoal.faults`, and full disks
- `elastic`, `paced`: elastic jobs without the platform, and jobs of known speed on a real one

May import everything; nothing imports it.
"""
