backend web
    option httpchk GET /health
    server web1 10.0.0.7:80 check inter 2s
