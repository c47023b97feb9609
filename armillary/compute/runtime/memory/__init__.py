"""Memory that functions share: lifetimes, pools, the manager that joins them, and the groups that users hold."""
