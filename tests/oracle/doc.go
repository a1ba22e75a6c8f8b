// Package oracle compares Sonde with the kubelet. It runs the kubelet's prober, from the
// Kubernetes modules, beside an engine, gives both the same scripts of events and
// answers, and compares the results.
//
// A Script is what happens to one pod. It does not depend on the times of attempts: each
// attempt takes the next answer, and a step ends when each probe has used its answers or
// waits. An attempt without an answer gets an error, which counts for nothing on either
// side (K41). So the sides may differ in the times of attempts, within Timing, and must
// agree in everything else.
//
// The package is a module of its own, so that the product's go.mod has no dependency on
// Kubernetes' code. K numbers identify behaviours of the kubelet v1.36.3 (docs/kubelet.md).
package oracle
