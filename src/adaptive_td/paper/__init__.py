"""The paper's figures and claims, and the report of a run, from results."""
