"""`python -m dynotune` is `dynotune`."""

from dynotune.cli import main

if __name__ == "__main__":
    main()
