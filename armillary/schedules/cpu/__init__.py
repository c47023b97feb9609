"""CPU schedules: `default` for any fused function, one file per operator that earns its own."""
