"""Object stores: how they are opened, and what their errors mean."""
