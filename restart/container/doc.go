// Package container watches and restarts containers of Docker or Podman, and creates containers of its own, by the
// Docker Engine API at a Unix socket.
//
// An instance is one start of a container: a container that is started again, by its runtime or somebody else, is a new
// instance. An attached container is one that somebody else has created. When a probe fails, it is restarted: by a
// signal to its first process if it has a restart policy, so that its own runtime starts it again, and otherwise by the
// runtime. An owned container is created for each instance, and removed after it.
//
// While the runtime does not respond, the state of instances is unknown, and they are left alone: drivers report this
// by a restart.Notice with a reason of the layer runtime.
//
// Files: config.go has Config and New, runtimes.go the state shared by all drivers of a socket, instance.go the
// identity and the address of an instance, attached.go watches a container and act.go restarts it, policy.go predicts
// who restarts it, owned.go creates containers and terminate.go terminates them; exec.go runs the commands of probes
// inside containers.
package container
