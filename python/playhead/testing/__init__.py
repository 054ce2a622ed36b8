"""Public helpers for tests: conformance suites for transports and sinks, scripted peers, slow links."""
