"""Element by element: tables of unary and binary operators, casts, broadcasting, fast approximations."""
