"""The suites: families of checks that drive any backend through the protocol alone."""
