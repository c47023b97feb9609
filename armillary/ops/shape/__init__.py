"""What moves or makes elements: creation, shapes, slices, indexing, scatter, scans."""
