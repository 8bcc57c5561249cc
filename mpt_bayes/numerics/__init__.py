"""The only home of numerical tricks: random streams, factorisations, log-space sums."""
