"""Channels that back ends round up: wide values, what meets, groups that become one."""
