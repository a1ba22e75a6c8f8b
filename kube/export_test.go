package kube

// MaxManifests is for tests of the package from outside.
const MaxManifests = maxManifests
