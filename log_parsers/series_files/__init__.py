"""Files that hold series and no lines: event files, trainer states, CSV files of loggers."""
