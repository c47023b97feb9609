"""Pictures of graphs: `picture` (what is in a box), `layout` (where boxes lie), `svg` (how they are drawn)."""
