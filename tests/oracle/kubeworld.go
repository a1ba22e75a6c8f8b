package oracle

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	remote "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/utils/exec"
)

// runner is a fake container runtime: the script named in a command supplies the answer.
type runner struct{ kubelet *kubelet }

// complaint is the output of a failing command.
const complaint = "not well"

// RunInContainer answers an exec probe.
func (r runner) RunInContainer(ctx context.Context, _ kubecontainer.ContainerID, cmd []string, timeout time.Duration) ([]byte, error) {
	at, ok := probeKeyOfCommand(cmd)
	if !ok {
		return nil, fmt.Errorf("%q is no command of a script", cmd)
	}
	switch r.kubelet.pod(at.script).play.try(at, unnumbered) {
	case Success:
		return nil, nil
	case Failure:
		return []byte(complaint), exec.CodeExitError{Err: fmt.Errorf("exit status 1"), Code: 1}
	case Late:
		wait(ctx, timeout)
		return nil, fmt.Errorf("%w: %q timed out after %s", remote.ErrCommandTimedOut, strings.Join(cmd, " "), timeout)
	case Slow:
		wait(ctx, slowness)
		return nil, nil
	}
	return nil, fmt.Errorf("no such container")
}

// recorder records the kubelet's events.
type recorder struct{ kubelet *kubelet }

// Event records an event.
func (r recorder) Event(object runtime.Object, _, _, message string) {
	ref, ok := object.(*v1.ObjectReference)
	if !ok {
		return
	}
	name, message, _ := strings.Cut(message, " ")
	at := probeKey{script: ref.Name, container: containerOf(ref.FieldPath)}
	if at.kind.UnmarshalText([]byte(strings.ToLower(name))) != nil {
		return
	}
	p := r.kubelet.pod(at.script).play
	if p.lines[at].check.Via == ViaTCP {
		p.kernel(at, Failure)
	}
	p.text(at, meaning(message))
}

// containerOf parses "spec.containers{web}".
func containerOf(fieldPath string) string {
	_, name, _ := strings.Cut(fieldPath, "{")
	return strings.TrimSuffix(name, "}")
}

// Eventf records an event.
func (r recorder) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	r.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf records an event.
func (r recorder) AnnotatedEventf(object runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	r.Eventf(object, kind, reason, format, args...)
}

// WithLogger returns r.
func (r recorder) WithLogger(klog.Logger) record.EventRecorderLogger { return r }
