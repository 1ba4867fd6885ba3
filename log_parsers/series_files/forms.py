"""The kinds of series files, as the rows read from them name their form."""

EVENT_FILE, TRAINER_STATE, METRICS_CSV = "event_file", "trainer_state", "metrics_csv"
FORMS = frozenset({EVENT_FILE, TRAINER_STATE, METRICS_CSV})
