upstream web {
    server 10.0.0.7:80 max_fails=3;
}
