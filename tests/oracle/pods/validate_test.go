package pods

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"

	"github.com/sonde-probe/sonde/kube"
)

func TestTheSamePodsAreRejectedInTheSameWords(t *testing.T) {
	compared := 0
	seeds(t, func(r *rand.Rand) string {
		pod := anyPod(r)
		pod.Namespace = oneOf(r, "ns", "N") // a request to the API server has one
		ours, theirs := refusals(pod), apiServers(t, pod)
		compared += len(theirs)
		if slices.Equal(ours, theirs) {
			return ""
		}
		return fmt.Sprintf("%s\nis refused by the API server for\n%s\nand by us for\n%s", show(pod), strings.Join(theirs, "\n"), strings.Join(ours, "\n"))
	})
	t.Logf("%d refusals are the same", compared)
}

// refusals returns kube's errors for a pod, sorted.
func refusals(pod *v1.Pod) []string {
	var all []string
	for _, err := range kube.Validate(pod) {
		all = append(all, err.Error())
	}
	slices.Sort(all)
	return all
}

// apiServers returns the API server's errors for a pod, sorted.
func apiServers(t *testing.T, pod *v1.Pod) []string {
	t.Helper()
	pod = pod.DeepCopy()
	corev1.SetObjectDefaults_Pod(pod)
	var in core.Pod
	if err := corev1.Convert_v1_Pod_To_core_Pod(pod, &in, nil); err != nil {
		t.Fatal(err)
	}
	options := podutil.GetValidationOptionsFromPodSpecAndMeta(&in.Spec, nil, &in.ObjectMeta, nil)
	var all []string
	for _, err := range validation.ValidatePodCreate(&in, options) {
		all = append(all, err.Error())
	}
	slices.Sort(all)
	return all
}

func TestDefaultsOfProbesAreTheSame(t *testing.T) {
	seeds(t, func(r *rand.Rand) string {
		pod := anyPod(r)
		ours, theirs := kube.Default(pod), pod.DeepCopy()
		corev1.SetObjectDefaults_Pod(theirs)
		grace := *theirs.Spec.TerminationGracePeriodSeconds
		if grace < 0 {
			grace = 1 // the API server converts it to that
		}
		if *ours.Spec.TerminationGracePeriodSeconds != grace || ours.Spec.RestartPolicy != theirs.Spec.RestartPolicy {
			return show(pod) + " has other defaults"
		}
		for i, c := range append(ours.Spec.Containers, ours.Spec.InitContainers...) {
			d := append(theirs.Spec.Containers, theirs.Spec.InitContainers...)[i]
			mine := []any{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Ports}
			if !equality.Semantic.DeepEqual(mine, []any{d.LivenessProbe, d.ReadinessProbe, d.StartupProbe, d.Ports}) {
				return fmt.Sprintf("%s\nhas in container %d the defaults\n%+v\nand with us\n%+v", show(pod), i, d, c)
			}
		}
		return ""
	})
}
