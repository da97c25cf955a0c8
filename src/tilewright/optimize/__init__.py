"""Passes from graph to graph, and the plan of what lies where in memory."""
