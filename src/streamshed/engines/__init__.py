"""Where networks run: each engine obeys the same decisions."""
