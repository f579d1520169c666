"""Peers: other task queues and ours at the same work, each as its own documentation starts it."""
