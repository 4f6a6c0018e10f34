"""The demo across containers: the deployed form from docker-compose.yml, and workers that join it from outside."""
