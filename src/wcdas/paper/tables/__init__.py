"""The paper's tables: its numbers, the sweeps that measure the same cells, and a verdict each."""
