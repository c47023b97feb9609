"""What vision functions compute at one pixel, as expressions; the functions themselves are in `functions/vision/`."""
