check process nginx with pidfile /var/run/nginx.pid
  start program = "/etc/init.d/nginx start"
