package kube

import (
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/sonde-probe/sonde/kube/internal/validate"
)

// Contained holds the settings of a manifest for a Docker or Podman container, in addition to those in Container.
type Contained struct {
	Pull    string   // "always", "never", or empty to pull a missing image
	Network string   // "host", or empty for a separate network
	Ports   []string // in the format of docker run --publish
	Mounts  []string // in the format of docker run --volume
	Memory  int64    // limit in bytes; 0 for none
	CPUs    float64  // limit; 0 for none

	// Obstacles are the reasons why the container cannot be created from the manifest alone, such as the volume of a
	// ConfigMap.
	Obstacles []string

	// Lost are sentences about features that the container loses.
	Lost []string
}

// Contained returns the settings for creating a container of the manifest in a container runtime. The manifest's pod must
// be valid.
func (m Manifest) Contained(container string) Contained {
	spec := &m.Pod.Spec
	c := containerOf(slices.Concat(spec.Containers, spec.InitContainers), container)
	_, unknown := environment(m.Pod, c.Env)
	r := Contained{Pull: pullOf(c)}
	r.network(m.Pod, c)
	r.Obstacles = obstaclesOf(m.Pod, c, unknown, func(mount v1.VolumeMount) string { return r.mount(m, mount) })
	r.limits(c)
	return r
}

func (r *Contained) lose(format string, a ...any) { r.Lost = append(r.Lost, fmt.Sprintf(format, a...)) }

// pullOf returns the pull policy of an image. As in the API server, the default for the tag latest is always.
func pullOf(c v1.Container) string {
	_, tag, _ := strings.Cut(c.Image[strings.LastIndexByte(c.Image, '/')+1:], ":")
	switch isLatest := tag == "" || tag == "latest"; {
	case c.ImagePullPolicy == v1.PullAlways, c.ImagePullPolicy == "" && isLatest && !strings.Contains(c.Image, "@"):
		return "always"
	case c.ImagePullPolicy == v1.PullNever:
		return "never"
	}
	return ""
}

// network sets the network and the published ports.
func (r *Contained) network(pod *v1.Pod, c v1.Container) {
	if pod.Spec.HostNetwork {
		r.Network = "host"
		return
	}
	for _, p := range c.Ports {
		if p.HostPort == 0 {
			continue
		}
		protocol := "tcp"
		if p.Protocol != "" {
			protocol = strings.ToLower(string(p.Protocol))
		}
		if protocol != "tcp" && protocol != "udp" {
			r.lose("Port %d is not published: the protocol %s is not supported", p.HostPort, p.Protocol)
			continue
		}
		address := p.HostIP
		switch {
		case address == "":
			address = "0.0.0.0"
		case strings.Contains(address, ":"):
			address = "[" + address + "]"
		}
		text := fmt.Sprintf("%s:%d:%d", address, p.HostPort, p.ContainerPort)
		if protocol != "tcp" {
			text += "/" + protocol
		}
		r.Ports = append(r.Ports, text)
	}
}

// SharesNetwork reports whether several containers of the pod run at the same time and can reach each other at localhost.
// In a container runtime, containers can do so only in the host's network.
func (m Manifest) SharesNetwork() bool {
	spec := &m.Pod.Spec
	return !spec.HostNetwork && (len(spec.Containers) > 1 || slices.ContainsFunc(spec.InitContainers, validate.IsSidecar))
}

// mount adds the mount of a volume, or returns why the volume cannot be mounted.
func (r *Contained) mount(m Manifest, mount v1.VolumeMount) (obstacle string) {
	var v v1.Volume
	if i := slices.IndexFunc(m.Pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == mount.Name }); i >= 0 {
		v = m.Pod.Spec.Volumes[i]
	}
	var source string
	switch {
	case v.HostPath != nil && mount.SubPathExpr == "":
		source = path.Join(v.HostPath.Path, mount.SubPath)
	case v.EmptyDir != nil && mount.SubPathExpr == "" && mount.SubPath == "":
		source = strings.Join([]string{m.Namespace, m.Name, v.Name}, "-")
		r.emptyDir(v)
	default: // such as a ConfigMap
		return fmt.Sprintf("the content of volume %q at %s is not in the manifest: add it to mounts", mount.Name, mount.MountPath)
	}
	if strings.Contains(source+mount.MountPath, ":") {
		return fmt.Sprintf("volume %q cannot be mounted from %s at %s: add it to mounts", mount.Name, source, mount.MountPath)
	}
	text := source + ":" + mount.MountPath
	if mount.ReadOnly {
		text += ":ro"
	}
	r.Mounts = append(r.Mounts, text)
	return ""
}

// emptyDir records how a volume of the runtime differs from an emptyDir volume of a pod.
func (r *Contained) emptyDir(v v1.Volume) {
	if v.EmptyDir.Medium != "" {
		r.lose("Volume %q is on the disk, not in memory", v.Name)
	}
	if v.EmptyDir.SizeLimit != nil {
		r.lose("The size of volume %q is not limited", v.Name)
	}
}

// minMemory is the lowest memory limit that container runtimes accept.
const minMemory = 6 << 20

// limits sets the resource limits.
func (r *Contained) limits(c v1.Container) {
	if memory := c.Resources.Limits.Memory(); memory.Sign() > 0 {
		if r.Memory = memory.Value(); r.Memory < minMemory {
			r.lose("The limit of memory is 6MiB, the least of container runtimes, instead of %s", memory)
			r.Memory = minMemory
		}
	}
	if cpu := c.Resources.Limits.Cpu(); cpu.Sign() > 0 {
		if r.CPUs = cpu.AsApproximateFloat64(); r.CPUs < 0.01 {
			r.lose("The limit of processors is 0.01, the least of container runtimes, instead of %s", cpu)
			r.CPUs = 0.01
		}
	}
}
