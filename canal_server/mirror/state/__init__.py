"""What a mirror knows of its tables and copies, kept in files in the lake."""
