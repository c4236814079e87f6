"""The description of the REST interface for programs (OpenAPI 3.1).

It says what the endpoints do, and a test compares both. Leaves out the endpoints.
"""
