"""The page and the figures people look at."""
