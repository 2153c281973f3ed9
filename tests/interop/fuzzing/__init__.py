"""What the fuzz tests draw: operands in memory of every kind, chains of what PyTorch does around a call, and calls."""
