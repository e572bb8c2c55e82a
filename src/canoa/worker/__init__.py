"""Running actions: lanes and runners, threads and processes, settling, draining, and what is counted."""
