"""``python -m bpinn`` runs the command line."""

from bpinn.cli import main

if __name__ == "__main__":
    main()
