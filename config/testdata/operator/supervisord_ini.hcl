; supervisord.conf
[program:web]
command=/srv/web
autorestart=true
