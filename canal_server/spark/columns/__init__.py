"""The columns and schemas that Spark sees, and how MySQL's columns become them."""
