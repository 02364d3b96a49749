"""Changes of a schema: the plan from the accepted to the declared one, and the difference of two accepted ones."""
