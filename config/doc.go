// Package config turns HCL text into a desired set of probes.
//
// Read collects files, Parse turns them into a Config. Parse starts nothing and
// does not stop at the first error: it returns every error as a Diagnostic that says
// what is wrong, where, and what to write instead.
//
// The package imports no handler, and nothing else that it configures. What a block
// takes is declared by the package that uses it: a Go struct with tags (see Of,
// SettingsOf and DriverOf), or a plugin's manifest.
//
// # The language
//
// All files are one configuration, in HCL's native syntax or, in files that end
// in .json, in its JSON syntax. It consists of these blocks:
//
//	engine { … }                    once; see Engine
//	variable "name" { … }           type, default, description, sensitive, validation
//	locals { name = value }         may refer to each other, but not in a cycle
//	defaults { … }                  arguments of all probes that do not set them
//	defaults "readiness" { … }      the same for one kind; takes precedence
//	plugin "name" { … }             a module that adds the handler block name; see Plugin
//	script "name" { … }             a script that adds the handler block name; see Script
//	target "name" { … }             what is probed
//	group "name" { … }              what some targets add up to; see Group
//	gateway "name" { … }            what sends requests to the members of groups; see Gateway
//	notify "name" { … }             who is told about troubles; see Notifier
//	probe_module "name" { … }       how a target is probed that a request names; see ProbeModule
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
//	    starting_period   = "200ms" # that of period: until the first verdict
//	    failing_period    = "1s"    # that of period: while the probe fails, or may
//	    timeout           = "1s"
//	    warn_after        = "200ms" # no limit: an attempt that takes longer is a warning
//	    warn_on_rise      = "latency" # none: a level that rises beside its own past is a warning
//	    max_restarts      = 3 # any: an uptime that falls more often in 5 minutes is a warning
//	    fail_after        = "500ms" # no limit: likewise, and a failure
//	    success_threshold = 1       # always 1 for startup and liveness
//	    failure_threshold = 3
//	    policy            = "runs"   # or "evidence": a score decides, and there are no thresholds
//	    effect            = "fail" # or "warn": a failure makes the target degraded, and nothing else
//	    on_error          = "ignore" # or "fail": an attempt that could not be made is a failure
//	  }
//	}
//
// Its elements are the targets web["10.0.0.7"] and web["10.0.0.8"]. Several
// probes of one kind have different names, of which one may be none: probe "readiness" "db". Startup and
// liveness probes can have a termination_grace_period of their own. A dynamic block
// makes nested blocks of a target or a probe in a loop, as in Terraform.
//
// A target can be restarted. With a process block the engine starts it, and its
// address is 127.0.0.1 by default; with a restart block a command restarts it:
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
// A plugin is one file. Its manifest declares the fields of its handler block, so
// errors in that block are reported like those in any other:
//
//	plugin "grpc" {
//	  source = "plugins/grpc.wasm"    # relative to the folder of this file
//	  sha256 = "9f2c…"
//	  grant { dial = ["target"] }     # the default
//	  limits { memory = "32MiB" }
//	  compile { memory = "1GiB" }     # for a huge module; the default grows with its size
//	}
//
// A script is a text in Starlark. It adds a handler block with the arguments port and args:
//
//	script "greeting" {
//	  source = <<-EOT                 # or: file = "greeting.star"
//	    def attempt(t):
//	        c = t.dial("tcp", t.port())
//	        return t.succeed(c.read_line())
//	  EOT
//	  max_steps = 1000000             # the default
//	  grant { dial = ["target"] }     # and limits, as for a plugin
//	}
//
// A value that is sensitive, by its variable or by sensitive(…), is never shown in a
// diagnostic. It cannot be part of a name.
//
// # Files
//
// The interface:
//
//	config.go      Config, Options, and the bounds on a configuration
//	schema.go      Handler, Driver, Settings and Schema: what others declare of the language
//	structs.go     schemas and values of Go structs with tags
//	parse.go       Parse: the stages from files to a Config
//	source.go      Read: files and directories
//	diagnostic.go  Diagnostic and its parts
//	text.go        diagnostics as text for a terminal
//	json.go        diagnostics as JSON
//	describe.go    the arguments that differ between two configurations
//
// The blocks:
//
//	schemas.go     the language: what each block may contain, as one Schema that is compiled
//	language.go    its blocks whose values have no fixed type, and the Schema for documents
//	decode.go      decodes a block by its schema, and reports errors at its fields
//	engine.go      the engine block
//	cluster.go     the cluster block
//	plugin.go      plugin blocks
//	script.go      script blocks
//	defaults.go    defaults blocks, and the rule of a probe
//	target.go      target blocks
//	known.go       the targets that there are, for blocks that name some
//	labels.go      the labels of a target
//	network.go     the network blocks of a target and of defaults
//	foreach.go     the elements of for_each
//	discover.go    discover blocks, whose elements were found
//	containers.go  targets of containers, by their labels
//	dynamic.go     dynamic blocks
//	lifecycle.go   what starts and restarts a target
//	targetlists.go after which other targets it is started, and on which it depends
//	ports.go       the ports of a target
//	probe.go       probe blocks and their handlers
//	quorum.go      the quorum blocks of a probe
//	shown.go       the settings of a handler as text, without what is secret
//	probemodule.go probe_module blocks
//	group.go       group blocks
//	gateway.go     gateway blocks
//	notify.go      notify blocks
//	maintenance.go maintenance blocks
//
// The values:
//
//	scope.go       what names in expressions stand for
//	variable.go    variable blocks
//	given.go       values of variables from flags, files and the environment
//	locals.go      locals blocks, in the order of their references
//	eval.go        evaluates expressions
//	share.go       what the elements of a for_each share: the values that a probe depends on
//	value.go       converts values to the types of fields
//
// The errors:
//
//	syntax.go      parses a source: bounds on the text, and syntax errors
//	secrets.go     secrets in a file: errors if it is to be pushed, otherwise warnings
//	secretname.go  which names are those of secrets
//	exposure.go    which expressions of a secret may be pushed
//	pushed.go      what else may be pushed
//	foreign.go     files in YAML, JSON and other formats, or encodings
//	explain.go     rewords HCL's errors about expressions
//	traversal.go   references such as var.hosts["a"]
//	collect.go     collects diagnostics, and merges equal ones
//	sourcetexts.go the texts of files, and the source line of a diagnostic, with secrets masked
//
// # Stages
//
// Parse goes from files to the desired state in stages, each of which takes what the ones before have returned:
//
//	sources    -> parseFiles       -> blocks by their types
//	blocks     -> decodeVariables  -> a scope: the values of var and local
//	            , decodeLocals
//	blocks     -> decodeEngine     -> Engine, Cluster and Plugins, and a language that has the blocks of plugins
//	            , decodeCluster
//	            , loadPlugins
//	blocks     -> decodeTargets    -> Set and Targets, and the targets that are known
//	blocks     -> decodeGroups …   -> Groups, Gateways, Notifiers, Maintenances, ProbeModules
//
// What is wrong goes to one collector; an evaluator returns the values of expressions, and a compiledSchema decodes a
// block. Package internal/tree reads blocks in both syntaxes, internal/function has the functions,
// suggest finds misspelt names, document writes configurations.
package config
