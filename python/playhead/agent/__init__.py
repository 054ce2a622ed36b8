"""The tool loop: a model streams, calls tools, hears about their results, and goes on, within bounds."""
