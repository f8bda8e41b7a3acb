LABELS = (
    "arrival", "departure", "berth change", "tug request", "pilot boarding", "weather",
    "traffic", "anchoring", "medical", "fire", "pollution", "equipment", "radio check", "other",
)
