"""Rules from confirmed incidents: proposed by code or a model, judged by behaviour, accepted by people."""
