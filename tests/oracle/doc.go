// Package oracle compares Sonde with the kubelet. It runs the kubelet's prober, from the Kubernetes modules, next to an engine,
// feeds both the same scripts of events and answers, and compares the results.
//
// A Script describes the events of one pod. It does not depend on the times of attempts: each attempt takes the next answer, and a
// step ends when each probe has used its answers or waits. An attempt without an answer gets an error, which does not count on
// either side (K41). So the sides may differ in the times of attempts, within Timing, and must agree in everything else.
//
// The package is a separate module, so that the product's go.mod has no dependency on Kubernetes. K numbers identify behaviours of
// the kubelet v1.36.3 (docs/kubelet.md).
package oracle
