"""What exporters spell out in many operators becomes one: gelu, attention, normalisations."""
