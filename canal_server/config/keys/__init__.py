"""The tables of settings: for each key its field, its reader and its description."""
