"""What the doctor asks of servers: it only reads, and judges nothing."""
