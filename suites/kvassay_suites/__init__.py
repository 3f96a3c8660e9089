"""The suites: checks that drive any backend through the protocol alone."""
