"""`python -m shoal.cli` is `shoal`, where the script is not on PATH."""

from shoal.cli.main import main

if __name__ == "__main__":
    main()
