[Unit]
Description=web
[Service]
ExecStart=/srv/web
Restart=always
