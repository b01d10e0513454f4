"""Dead letters: what one is, how a writer keeps them, and how a place lists and replays them."""
