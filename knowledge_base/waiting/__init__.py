"""Who waits for whom, in what, since when; and whom all of them wait for."""
