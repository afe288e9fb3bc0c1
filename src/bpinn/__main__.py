"""``python -m bpinn`` is the program."""

from bpinn.cli import main

if __name__ == "__main__":
    main()
