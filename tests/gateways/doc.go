// Package gateways tests outputs with the libraries that real clients use. It is a module of
// its own, so that these are no dependencies of the engine.
package gateways
