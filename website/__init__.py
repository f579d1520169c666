"""How the pages of docs/, written for GitHub, become a site: `make docs`."""
