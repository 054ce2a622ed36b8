"""`python -m playhead`: the same command as `playhead`."""

from playhead.cli import main

if __name__ == "__main__":
    main()
