package oracle

import (
	"slices"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// The kubelet's prober and Sonde with real containers publish the same verdicts, and a container is restarted exactly when the
// kubelet would restart it.
func TestContainersAgree(t *testing.T) {
	tier.CI(t)
	r := dockertest.Docker(t)
	k, ours := newKubelet(t), newContained(t, r)
	c := &comparison{time: new(metronome)}
	go c.time.keep(t.Context())
	time.Sleep(settling)
	const batch = 10 // concurrent containers
	var left []*Script
	for n := range uint64(tier.Pick(2, 6, 100)) {
		left = append(left, generateContained(*seed+n))
	}
	restarts := 0
	for trial := 1; len(left) > 0; trial++ {
		var retried []*Script
		for scripts := range slices.Chunk(left, batch) {
			for i, plays := range playAll(t, scripts, k.newSide, ours.newSide) {
				all := compare(plays[0], plays[1])
				if len(all) > 0 && c.wasLate(plays) && trial < *trials {
					t.Logf("trial %d, the machine was late: %v", trial, all)
					retried = append(retried, scripts[i])
					continue
				}
				for _, d := range all {
					t.Errorf("%s%v\n%v", confirmed, d, d.Script)
				}
				for _, step := range scripts[i].Steps {
					if step.Do == Exit {
						restarts++
					}
				}
			}
		}
		left = again(retried)
	}
	t.Logf("%d restarts", restarts)
}
