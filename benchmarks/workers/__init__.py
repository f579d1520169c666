"""The apps that figures run in worker processes of their own."""
