"""Run folders: atomic files, the manifest, chains block by block, runs of problem files."""
