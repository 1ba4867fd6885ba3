"""What people are shown, built once from the record; terminal, page, chat and post-mortem only lay it out."""
