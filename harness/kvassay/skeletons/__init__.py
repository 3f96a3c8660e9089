"""What `kvassay new-backend` writes, one folder a kind."""
