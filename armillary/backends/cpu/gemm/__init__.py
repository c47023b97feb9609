"""Matrix products: dense (register tile), narrow (few columns), amx and amx_panels, packed_dots, pack (operands)."""
