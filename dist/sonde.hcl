# The configuration of the engine that systemd runs: all *.hcl files of /etc/sonde.
#
#   sonde docs                  describes the blocks
#   sonde validate /etc/sonde   checks a change
#   systemctl reload sonde      applies it

engine {
  listen      = "127.0.0.1:9650" # status page, API and /metrics
  log_format  = "text"
  state       = "/var/lib/sonde/sonde.state"
  allow_empty = true # remove this when there are targets
}
