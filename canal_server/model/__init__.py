"""Values that travel between the stages: frozen, slotted, without behaviour."""
