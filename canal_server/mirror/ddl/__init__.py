"""What a DDL statement means for the table in the lake.

Leaves out the stream that brings the statements (`follow`).
"""
