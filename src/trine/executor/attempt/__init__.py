"""One attempt at a job, in a directory that all of its nodes can read: shared by the engines. Imports nothing: every
process of an attempt loads it."""
