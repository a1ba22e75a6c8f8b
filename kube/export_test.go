package kube

// MaxManifests exports maxManifests for tests.
const MaxManifests = maxManifests
