// Package oracle compares Sonde with the kubelet. It runs the kubelet's own
// prober, as the Kubernetes modules publish it, beside an engine of ours, gives
// both the same scripts of events and answers, and compares what they did.
//
// A Script is the life of one pod, written so that it does not depend on when
// somebody looks: its answers are handed out in order, one for each attempt, and
// its next step is taken when each probe has used the answers of the step up or
// rests. An attempt for which the script has no answer is answered by an error,
// which counts for nothing on either side (K41). So the two sides may differ in
// when they attempt, by as much as Timing allows, and must agree in all else.
//
// The package is a module of its own: nothing of Kubernetes reaches the
// product's go.mod. The K numbers count behaviours of the kubelet v1.36.3.
package oracle
