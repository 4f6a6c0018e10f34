"""The demo in containers: the deployment of docker-compose.yml, and workers that join it from outside."""
