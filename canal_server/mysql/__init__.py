"""The way to a MySQL or MariaDB server: the one place that knows PyMySQL."""
