"""What is wrong here, and the remedy: one file per thing that is looked at, judged apart from the looking."""
