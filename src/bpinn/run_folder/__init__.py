"""Folders of runs: atomic files, the manifest, chains block by block, runs of problem files."""
