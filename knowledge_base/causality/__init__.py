"""From observations to the first fault: what came first, what followed, who is held responsible."""
