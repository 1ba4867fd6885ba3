"""The programs that the launchers of the lab start; none of them is imported here."""
