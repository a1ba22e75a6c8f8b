// Package config turns HCL text into a desired set of probes.
//
// Read collects files, Parse turns them into a Config. Parse starts nothing,
// never panics and never stops at the first mistake: it returns every one as a
// Diagnostic that says what is wrong, where, and what to write instead.
//
// The package knows no handler. What a handler block takes is data, a Schema:
// Of derives it from a Go struct; a plugin's manifest declares it.
//
// # The language
//
// All files are one configuration, in HCL's native syntax or, in files that end
// in .json, in its JSON syntax. These blocks can stand in them:
//
//	engine { … }                    once; see Engine
//	variable "name" { … }           type, default, description, sensitive, validation
//	locals { name = value }         may refer to each other, but not in a circle
//	defaults { … }                  what probes say of themselves when they say nothing
//	defaults "readiness" { … }      the same, for one kind; it comes before the other
//	plugin "name" { … }             a module that adds the handler block name; see Plugin
//	target "name" { … }             what is probed
//
// A target has an address, named ports, and probes:
//
//	target "web" {
//	  for_each = toset(["10.0.0.7", "10.0.0.8"])  # a set of strings or a map
//	  address  = each.value                       # IP address or host name
//	  ports    = { http = 8080 }
//
//	  probe "readiness" {           # startup, readiness or liveness
//	    http { port = "http" }      # one handler block
//	    initial_delay     = "0s"    # these are the defaults
//	    period            = "10s"
//	    timeout           = "1s"
//	    success_threshold = 1       # always 1 for startup and liveness
//	    failure_threshold = 3
//	    on_error          = "ignore" # or "fail": an attempt that could not be made is a failure
//	  }
//	}
//
// Its elements are the targets web["10.0.0.7"] and web["10.0.0.8"]. Several
// probes of one kind have a name each: probe "readiness" "db". Startup and liveness
// probes can have a termination_grace_period of their own. A dynamic block makes
// process, restart, back_off, probe and handler blocks in a loop.
//
// A target can be restarted. With process the engine starts it, and its address
// is 127.0.0.1 unless it has another; with restart something else does:
//
//	target "worker" {
//	  process {                         # or: restart { command = […] }
//	    command = ["./worker", "-v"]    # no shell
//	    env     = { LEVEL = "3" }
//	    dir     = "/srv"
//	    user    = "worker"
//	  }
//	  termination_grace_period = "30s"
//	  restart_policy           = "always"   # or "on_failure", "never"
//	  back_off {
//	    initial = "10s"
//	    max     = "5m"
//	    reset   = "10m"
//	  }
//	}
//
// A plugin is one file. Its manifest says which fields its handler block takes, so
// that mistakes in it are told as those of any other block:
//
//	plugin "grpc" {
//	  source = "plugins/grpc.wasm"    # relative to the folder of this file
//	  sha256 = "9f2c…"
//	  grant { dial = ["target"] }     # the default
//	  limits { memory = "32MiB" }
//	}
//
// A value that is sensitive, by its variable or by sensitive(…), never stands in a
// diagnostic. It cannot be a name.
package config
