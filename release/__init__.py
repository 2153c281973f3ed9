"""What a release is made with: source distributions, wheels, and looks into them. `make wheels` calls it."""
