"""Every section of the settings: frozen, from code, YAML and environment."""
