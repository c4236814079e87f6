"""What the mirror logs, and what its errors mean to an operator."""
