"""The numbered equations, a file for each idea; those of a theorem stand in the theorem's file."""
