"""What druid's ConfigTools printed, on the JDK."""

from __future__ import annotations

# Of a test of the Java server, whose password is "canal"; a key of 512 bits.
JAVA_KEY = (
    "MFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBALK4BUxdDltRRE5/zXpVEVPUgunvscYFtEip3pmLlhrWpacX"
    "7y7GCMo2/JM6LeHmiiNdH1FWgGCpUfircSwlWKUCAwEAAQ=="
)
JAVA_TEXT = (
    "cZozNf1mzW6EQLGO2q9u99619xbZLO0fbua3EX08r4BWNXb8lAt1aHrTEOBttd6UY8Vnuc0easlVXZDd"
    "Ltt8BQ=="
)
# Encrypted with the private key that is part of druid; the password is "root".
DEFAULT_TEXT = (
    "bNVOqb7WKLX5Bjnw+LMv92taj25KOxDimXxILPQjw42wgv+1lHzOH8kr97xDwWdhpY67QuYCS7sWN4W4"
    "6YbkFA=="
)
