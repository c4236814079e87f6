"""The settings of a mirror, read and checked, and the tables that they want."""
