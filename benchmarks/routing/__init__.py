"""How nodes are chosen, with real ones: strategies beside each other over worker processes of different speed."""
