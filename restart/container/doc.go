// Package container follows and restarts containers of Docker or Podman, and makes containers of its own, by the Docker Engine
// API at a Unix socket.
//
// An instance is one start of a container: a container that its runtime or somebody starts again is a new instance. An attached
// container is somebody else's: a failing probe restarts it, by a signal to its first process if it has a restart policy, so that its own runtime
// starts it again, and by the runtime otherwise. An owned container is made for each instance, and removed after it.
//
// While the runtime does not answer nothing is known about instances, and nothing is done to them: drivers report it by a
// restart.Notice with a reason of the layer runtime.
//
// Files: config.go has Config and New, runtimes.go what all drivers of a socket share, instance.go says what an instance is and how it is reached,
// attached.go follows a container and act.go restarts it, policy.go says beforehand who does, owned.go makes containers and terminate.go ends them; exec.go
// runs the commands of probes inside.
package container
