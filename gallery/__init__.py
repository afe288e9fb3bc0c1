"""A gallery of problems: `make gallery` runs them and writes docs/gallery."""
