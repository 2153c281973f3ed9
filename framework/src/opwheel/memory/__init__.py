"""Memory of results on a CPU: what is kept for the next ones, huge pages, and how much a process uses."""
