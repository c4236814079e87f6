"""`payload = arrow`: changes of many tables as streams of Arrow in rows."""
