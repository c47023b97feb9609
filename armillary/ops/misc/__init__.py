"""Annotations, devices, operators that users register, linear algebra."""
