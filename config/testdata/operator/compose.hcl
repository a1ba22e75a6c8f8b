# A file of docker compose.
name: shop

services: # of the shop
  web:
    image: shop/web
